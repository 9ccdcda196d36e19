// The grid: one canvas as large as what can be seen, drawn anew as it is
// scrolled. Only visible cells are looked at, however many traces there are.

import * as colours from "./colours.js";

const HEAD = 44;
const ROW = 19;
const NAME_MIN = 180;
const NAME_MAX = 420;

export class Grid {
  constructor(scroller, canvas, spacer, on) {
    Object.assign(this, { scroller, canvas, spacer, on });
    this.data = null;
    this.order = [];
    this.selected = null;
    this.hover = null;
    const redraw = () => this.paint();
    scroller.addEventListener("scroll", redraw, { passive: true });
    new ResizeObserver(() => this.resize()).observe(scroller);
    canvas.addEventListener("mousemove", (event) => this.point(event));
    canvas.addEventListener("mouseleave", () => this.leave());
    canvas.addEventListener("click", (event) => this.click(event));
  }

  // `shown` are the places of traces in the data, in the order to be drawn.
  show(data, shown, style) {
    this.data = data;
    this.order = shown;
    this.style = style;
    this.names = shown.map((at) => style.name(data.traces[at]));
    this.selected = null;
    this.hover = null;
    const measure = this.canvas.getContext("2d");
    measure.font = this.font();
    const some = this.names.filter((_, at) => at % Math.ceil(this.names.length / 400 || 1) === 0);
    const widest = Math.max(0, ...some.map((name) => measure.measureText(name).width));
    this.name = Math.round(Math.max(NAME_MIN, Math.min(NAME_MAX, widest + 46)));
    this.scroller.scrollTop = 0;
    this.resize();
    // The newest commits are what people come for.
    this.scroller.scrollLeft = this.scroller.scrollWidth;
    this.draw();
  }

  font(weight = 400) {
    return `${weight} 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    if (this.data) {
      const columns = this.data.columns.length;
      const room = width - this.name - 12;
      this.cell = Math.max(4, Math.min(34, Math.floor(room / Math.max(1, columns))));
      this.spacer.style.width = `${this.name + columns * this.cell + 12}px`;
      this.spacer.style.height = `${HEAD + this.order.length * ROW + 8}px`;
      if (this.selected) this.reveal(this.selected);
    }
    this.draw();
  }

  paint() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.width / ratio;
    const height = this.canvas.height / ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ground = colours.cssColour("--panel");
    context.fillStyle = ground;
    context.fillRect(0, 0, width, height);
    if (!this.data) return;
    const { scrollLeft: left, scrollTop: top } = this.scroller;
    const text = colours.cssColour("--text");
    const soft = colours.cssColour("--soft");
    const line = colours.cssColour("--line");
    const firstRow = Math.max(0, Math.floor(top / ROW));
    const lastRow = Math.min(this.order.length, Math.ceil((top + height - HEAD) / ROW));
    const firstColumn = Math.max(0, Math.floor(left / this.cell));
    const lastColumn = Math.min(this.data.columns.length, Math.ceil((left + width - this.name) / this.cell));
    const gap = this.cell > 8 ? 1 : 0;
    for (let row = firstRow; row < lastRow; row++) {
      const trace = this.data.traces[this.order[row]];
      const y = HEAD + row * ROW - top;
      const colour = this.style.colours(trace);
      const above = row > 0 && this.data.traces[this.order[row - 1]];
      if (above && this.style.group(above) !== this.style.group(trace)) {
        context.fillStyle = line;
        context.fillRect(this.name - 6, y, width, 1);
      }
      let start = firstColumn;
      // Neighbours of one colour are one rectangle when there is no gap.
      while (start < lastColumn) {
        const fill = colour(trace.cells[start]);
        let end = start + 1;
        while (!gap && end < lastColumn && trace.cells[end] === trace.cells[start]) end++;
        if (fill) {
          context.fillStyle = fill;
          const x = this.name + start * this.cell - left;
          context.fillRect(x, y + 2, (end - start) * this.cell - gap, ROW - 4);
        }
        start = end;
      }
    }
    this.drawNames(context, firstRow, lastRow, top, height, { ground, text, soft, line });
    this.drawHead(context, firstColumn, lastColumn, left, width, { ground, text, soft, line });
    this.drawSelection(context, left, top);
    this.on.painted?.();
  }

  drawNames(context, first, last, top, height, { ground, text, soft, line }) {
    context.fillStyle = ground;
    context.fillRect(0, 0, this.name, height);
    context.save();
    context.beginPath();
    context.rect(0, HEAD, this.name - 10, height - HEAD);
    context.clip();
    context.textBaseline = "middle";
    context.font = this.font();
    for (let row = first; row < last; row++) {
      const trace = this.data.traces[this.order[row]];
      const y = HEAD + row * ROW - top;
      if (this.hover?.row === row || this.selected?.row === row) {
        context.fillStyle = colours.cssColour("--accent-soft");
        context.fillRect(0, y, this.name, ROW);
      }
      const badge = this.style.badge(trace);
      if (badge) {
        context.fillStyle = badge.colour;
        context.beginPath();
        context.arc(13, y + ROW / 2, 3.5, 0, 2 * Math.PI);
        if (badge.hollow) {
          context.strokeStyle = badge.colour;
          context.lineWidth = 1.3;
          context.stroke();
        } else context.fill();
      }
      context.fillStyle = this.selected?.row === row ? text : soft;
      context.fillText(this.names[row], 25, y + ROW / 2 + 0.5);
    }
    context.restore();
    context.fillStyle = line;
    context.fillRect(this.name - 7, 0, 1, height);
  }

  // Days, and a mark for each commit in the colour of its author.
  drawHead(context, first, last, left, width, { ground, text, soft, line }) {
    context.fillStyle = ground;
    context.fillRect(this.name - 6, 0, width, HEAD);
    context.font = this.font(500);
    context.textBaseline = "middle";
    let free = -Infinity;
    let day = "";
    for (let column = first; column < last; column++) {
      const commit = this.data.columns[column];
      const x = this.name + column * this.cell - left;
      const today = commit.time ? new Date(commit.time * 1000).toISOString().slice(0, 10) : `@${commit.index}`;
      if (today !== day) {
        day = today;
        if (x > free) {
          context.fillStyle = soft;
          context.fillText(today, x, 13);
          context.fillStyle = line;
          context.fillRect(x, 22, 1, HEAD - 22);
          free = x + context.measureText(today).width + 14;
        }
      }
      const chosen = this.selected?.column === column;
      const hovered = this.hover?.column === column;
      context.fillStyle = chosen || hovered ? text : authorColour(commit.author);
      context.fillRect(x, chosen || hovered ? 26 : 30, Math.max(2, this.cell - 1), chosen || hovered ? 12 : 7);
    }
    context.fillStyle = line;
    context.fillRect(0, HEAD - 1, width, 1);
    context.fillStyle = soft;
    context.font = this.font(600);
    context.fillText(`${this.order.length.toLocaleString("en")} traces`, 13, HEAD / 2);
  }

  drawSelection(context, left, top) {
    for (const [place, colour, width] of [
      [this.hover, "--faint", 1],
      [this.selected, "--text", 2],
    ]) {
      if (!place || place.row < 0 || place.column < 0) continue;
      const x = this.name + place.column * this.cell - left;
      const y = HEAD + place.row * ROW - top;
      if (x < this.name - 6 || y < HEAD - 4) continue;
      context.strokeStyle = colours.cssColour(colour);
      context.lineWidth = width;
      context.strokeRect(x - 0.5, y + 1, this.cell + (this.cell > 8 ? 0 : 1), ROW - 2);
    }
  }

  // What lies under a point: a row of -1 is the head, a column of -1 the name.
  at(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const column = x < this.name - 6 ? -1 : Math.floor((x - this.name + this.scroller.scrollLeft) / this.cell);
    const row = y < HEAD ? -1 : Math.floor((y - HEAD + this.scroller.scrollTop) / ROW);
    if (row >= this.order.length || column >= this.data.columns.length || (row < 0 && column < 0)) return null;
    return { row, column };
  }

  traceAt(row) {
    return this.data?.traces[this.order[row]];
  }

  point(event) {
    const place = this.at(event);
    if (place?.row !== this.hover?.row || place?.column !== this.hover?.column) {
      this.hover = place;
      this.paint();
    }
    this.on.hover(place, event);
  }

  leave() {
    this.hover = null;
    this.paint();
    this.on.hover(null);
  }

  click(event) {
    const place = this.at(event);
    if (!place) return;
    this.scroller.focus({ preventScroll: true });
    this.select(place);
    this.on.open(place);
  }

  select(place) {
    this.selected = place;
    this.reveal(place);
    this.paint();
    this.on.select(place);
  }

  move(rows, columns) {
    if (!this.data || !this.order.length) return;
    const from = this.selected ?? { row: 0, column: this.data.columns.length - 1 };
    const clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
    this.select({
      row: clamp(from.row + rows, this.order.length),
      column: clamp(from.column + columns, this.data.columns.length),
    });
  }

  // To the next cell of the row that is not like the one before it.
  change(direction) {
    const place = this.selected;
    if (!place || place.row < 0) return;
    const cells = this.traceAt(place.row).cells;
    const there = (at) => cells[at] !== 0 && cells[at] != null;
    const before = (at) => {
      for (at--; at >= 0; at--) if (there(at)) return cells[at];
      return null;
    };
    for (let at = place.column + direction; at >= 0 && at < cells.length; at += direction) {
      const last = before(at);
      if (there(at) && last !== null && last !== cells[at]) return this.select({ row: place.row, column: at });
    }
  }

  reveal({ row, column }) {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (row >= 0) {
      const y = row * ROW;
      const room = height - HEAD - ROW;
      if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
      else if (y > this.scroller.scrollTop + room) this.scroller.scrollTop = y - room;
    }
    if (column >= 0) {
      const x = column * this.cell;
      const room = width - this.name - this.cell - 12;
      if (x < this.scroller.scrollLeft) this.scroller.scrollLeft = x;
      else if (x > this.scroller.scrollLeft + room) this.scroller.scrollLeft = x - room;
    }
  }

  page() {
    return Math.max(1, Math.floor((this.scroller.clientHeight - HEAD) / ROW) - 1);
  }
}

const authors = new Map();

export function authorColour(author = "") {
  if (!authors.has(author)) {
    let hash = 7;
    for (const letter of author) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    authors.set(author, hash % 360);
  }
  return `hsl(${authors.get(author)} 38% ${colours.isDark() ? 58 : 62}%)`;
}
