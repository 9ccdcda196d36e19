// One numeric trace over commits: points, a line, and where it stepped.

import { cssColour } from "./colours.js";

const EDGE = { left: 76, right: 22, top: 30, bottom: 30 };

export class Chart {
  constructor(canvas, on) {
    Object.assign(this, { canvas, on });
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("mousemove", (event) => on.hover(this.nearest(event), event));
    canvas.addEventListener("mouseleave", () => on.hover(null));
    canvas.addEventListener("click", (event) => {
      const point = this.nearest(event);
      if (point) on.open(point);
    });
  }

  // `points` are [column, number]; `steps` have the column they happened at.
  show(title, unit, points, columns, steps, chosen) {
    Object.assign(this, { title, unit, points, columns, steps, chosen });
    this.draw();
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!this.points || !box.width) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, box.width, box.height);
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    const soft = cssColour("--soft");
    context.fillStyle = cssColour("--text");
    context.font = "600 12.5px system-ui, sans-serif";
    context.fillText(this.title, EDGE.left, 14);
    context.font = "11.5px system-ui, sans-serif";
    if (!this.points.length) {
      context.fillStyle = soft;
      context.fillText("no numbers at these commits", EDGE.left, box.height / 2);
      return;
    }
    const numbers = this.points.map(([, number]) => number);
    let low = Math.min(...numbers);
    let high = Math.max(...numbers);
    const margin = (high - low) * 0.12 || Math.abs(high) * 0.05 || 1;
    low -= margin;
    high += margin;
    const x = (column) =>
      EDGE.left + ((box.width - EDGE.left - EDGE.right) * column) / Math.max(1, this.columns.length - 1);
    const y = (number) =>
      box.height - EDGE.bottom - ((box.height - EDGE.top - EDGE.bottom) * (number - low)) / (high - low);
    Object.assign(this, { x, y });
    context.strokeStyle = cssColour("--line");
    context.fillStyle = soft;
    context.lineWidth = 1;
    context.textAlign = "right";
    for (const tick of ticks(low, high)) {
      context.beginPath();
      context.moveTo(EDGE.left, Math.round(y(tick)) + 0.5);
      context.lineTo(box.width - EDGE.right, Math.round(y(tick)) + 0.5);
      context.stroke();
      context.fillText(shown(tick, this.unit), EDGE.left - 8, y(tick));
    }
    context.textAlign = "center";
    const places = Math.min(6, this.columns.length);
    for (let at = 0; at < places; at++) {
      const column = Math.round((at * (this.columns.length - 1)) / Math.max(1, places - 1));
      const commit = this.columns[column];
      const text = commit.time ? new Date(commit.time * 1000).toISOString().slice(0, 10) : `@${commit.index}`;
      context.fillText(text, Math.min(Math.max(x(column), EDGE.left + 20), box.width - 44), box.height - 12);
    }
    context.textAlign = "left";
    for (const step of this.steps) {
      context.fillStyle = cssColour(step.after > step.before ? "--bad" : "--good");
      context.globalAlpha = 0.13;
      context.fillRect(x(step.from), EDGE.top, Math.max(3, x(step.to) - x(step.from)), box.height - EDGE.top - EDGE.bottom);
      context.globalAlpha = 1;
      const change = ((step.after / step.before - 1) * 100).toFixed(1);
      if (step.before) context.fillText(`${change > 0 ? "+" : ""}${change} %`, x(step.to) + 5, EDGE.top + 8);
    }
    const accent = cssColour("--accent");
    context.strokeStyle = accent;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.beginPath();
    this.points.forEach(([column, number], at) => context[at ? "lineTo" : "moveTo"](x(column), y(number)));
    context.stroke();
    for (const [column, number] of this.points) {
      context.beginPath();
      const chosen = column === this.chosen;
      context.fillStyle = chosen ? cssColour("--text") : accent;
      context.arc(x(column), y(number), chosen ? 5 : this.points.length > 200 ? 1.6 : 2.6, 0, 2 * Math.PI);
      context.fill();
    }
  }

  nearest(event) {
    if (!this.points?.length || !this.x) return null;
    const at = event.clientX - this.canvas.getBoundingClientRect().left;
    let best = this.points[0];
    for (const point of this.points) if (Math.abs(this.x(point[0]) - at) < Math.abs(this.x(best[0]) - at)) best = point;
    return { column: best[0], number: best[1] };
  }
}

function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * power).find((by) => by >= rough) || rough;
  const all = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) all.push(tick);
  return all;
}

// A number with its unit; times in the unit that suits them.
export function shown(number, unit = "") {
  if (unit === "ns" || unit === "s") {
    let nanos = unit === "s" ? number * 1e9 : number;
    for (const [name, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
      if (Math.abs(nanos) >= size) return `${round(nanos / size)} ${name}`;
    }
    return `${round(nanos)} ns`;
  }
  return `${round(number)}${unit ? ` ${unit}` : ""}`;
}

function round(number) {
  return Number(number.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}
