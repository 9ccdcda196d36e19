// A chart of one numeric trace over commits: points, a line, and its steps.

import { theme } from "./colours.js";
import { day, percent } from "./parts.js";
import { font } from "./paint.js";

const EDGE = { left: 78, right: 24, top: 40, bottom: 30 };

export class Chart {
  constructor(canvas, on) {
    Object.assign(this, { canvas, on, hovered: null });
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("mousemove", (event) => this.hover(this.nearest(event), event));
    canvas.addEventListener("mouseleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const point = this.nearest(event);
      if (point) on.open(point);
    });
  }

  // `points` are [column, number]; `steps` contain the columns before and after
  // each step.
  show(title, unit, points, columns, steps, chosen) {
    Object.assign(this, { title, unit, points, columns, steps, chosen, hovered: null });
    this.draw();
  }

  hover(point, event) {
    if (point?.column !== this.hovered?.column) {
      this.hovered = point;
      this.draw();
    }
    this.on.hover(point, event);
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!this.points || !box.width) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const context = this.canvas.getContext("2d");
    const colours = theme();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, box.width, box.height);
    context.textBaseline = "middle";
    context.fillStyle = colours.text;
    context.font = font(600, 12.5);
    context.fillText(this.title, EDGE.left, 17);
    context.font = font(400, 11.5);
    if (!this.points.length) {
      context.fillStyle = colours.soft;
      context.fillText("no numbers at these commits", EDGE.left, box.height / 2);
      return;
    }
    this.scale(box);
    this.drawAxes(context, box, colours);
    this.drawSteps(context, box, colours);
    this.drawPoints(context, box, colours);
  }

  // Computes the scales of both axes.
  scale(box) {
    const numbers = this.points.map(([, number]) => number);
    let low = numbers.reduce((a, b) => Math.min(a, b));
    let high = numbers.reduce((a, b) => Math.max(a, b));
    const margin = (high - low) * 0.12 || Math.abs(high) * 0.05 || 1;
    low -= margin;
    high += margin;
    const last = Math.max(1, this.columns.length - 1);
    this.x = (column) => EDGE.left + ((box.width - EDGE.left - EDGE.right) * column) / last;
    this.y = (number) => box.height - EDGE.bottom - ((box.height - EDGE.top - EDGE.bottom) * (number - low)) / (high - low);
    this.ticks = ticks(low, high);
  }

  drawAxes(context, box, colours) {
    context.strokeStyle = colours.line;
    context.fillStyle = colours.soft;
    context.lineWidth = 1;
    context.textAlign = "right";
    for (const tick of this.ticks) {
      const y = Math.round(this.y(tick)) + 0.5;
      context.beginPath();
      context.moveTo(EDGE.left, y);
      context.lineTo(box.width - EDGE.right, y);
      context.stroke();
      context.fillText(shown(tick, this.unit), EDGE.left - 10, y);
    }
    context.textAlign = "center";
    const labels = Math.min(Math.max(2, Math.floor(box.width / 130)), this.columns.length);
    for (let at = 0; at < labels; at++) {
      const column = Math.round((at * (this.columns.length - 1)) / Math.max(1, labels - 1));
      const x = Math.min(Math.max(this.x(column), EDGE.left + 14), box.width - 34);
      context.fillText(day(this.columns[column]), x, box.height - 13);
    }
    context.textAlign = "left";
  }

  // Draws a band between the last number before a step and the first after it,
  // and the level on both sides.
  drawSteps(context, box, colours) {
    let from = 0;
    this.steps.forEach((step, at) => {
      const colour = step.after > step.before ? colours.bad : colours.good;
      context.fillStyle = colour;
      context.globalAlpha = 0.14;
      context.fillRect(this.x(step.from), EDGE.top, Math.max(3, this.x(step.to) - this.x(step.from)), box.height - EDGE.top - EDGE.bottom);
      context.globalAlpha = 1;
      context.font = font(600, 11.5);
      if (step.before) context.fillText(percent(step.after / step.before - 1), this.x(step.to) + 6, EDGE.top + 8);
      this.drawLevel(context, colours, from, step.from, step.before);
      from = step.to;
      const last = at === this.steps.length - 1;
      if (last) this.drawLevel(context, colours, from, this.columns.length - 1, step.after);
    });
    context.font = font(400, 11.5);
  }

  drawLevel(context, colours, from, to, level) {
    context.strokeStyle = colours.faint;
    context.setLineDash([5, 4]);
    context.lineWidth = 1.2;
    context.beginPath();
    context.moveTo(this.x(from), this.y(level));
    context.lineTo(this.x(to), this.y(level));
    context.stroke();
    context.setLineDash([]);
  }

  drawPoints(context, box, colours) {
    if (this.hovered) {
      context.fillStyle = colours.line;
      context.fillRect(Math.round(this.x(this.hovered.column)), EDGE.top, 1, box.height - EDGE.top - EDGE.bottom);
    }
    context.strokeStyle = context.fillStyle = colours.accent;
    context.lineWidth = 1.3;
    context.lineJoin = "round";
    context.globalAlpha = 0.75;
    context.beginPath();
    this.points.forEach(([column, number], at) => context[at ? "lineTo" : "moveTo"](this.x(column), this.y(number)));
    context.stroke();
    context.globalAlpha = 1;
    const radius = this.points.length > 200 ? 1.6 : 2.6;
    for (const [column, number] of this.points) {
      const marked = column === this.chosen || column === this.hovered?.column;
      context.beginPath();
      context.arc(this.x(column), this.y(number), marked ? 5 : radius, 0, 2 * Math.PI);
      context.fill();
      if (!marked) continue;
      context.strokeStyle = colours.panel;
      context.lineWidth = 2;
      context.stroke();
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

// Formats a number with its unit; times are scaled to a suitable unit.
export function shown(number, unit = "") {
  if (unit === "ns" || unit === "s") {
    const nanos = unit === "s" ? number * 1e9 : number;
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
