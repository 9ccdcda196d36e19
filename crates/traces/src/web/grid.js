// The grid: one canvas of the size of the visible area, redrawn on scrolling.
// Only visible cells are processed, however many traces there are.

import { changedColumns } from "./changes.js";
import { HEAD, ROW, font, paint } from "./paint.js";

// The minimum and maximum width of a cell. Beyond them the grid scrolls
// horizontally, or leaves space.
const CELL_MIN = 4;
const CELL_MAX = 30;
const TEST_MAX = 190;
const REST_MAX = 260;
const EDGE = 12;

export class Grid {
  constructor(scroller, canvas, spacer, on) {
    Object.assign(this, { scroller, canvas, spacer, on });
    Object.assign(this, { data: null, order: [], selected: null, hover: null, marked: -1 });
    scroller.addEventListener("scroll", () => this.paint(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(scroller);
    canvas.addEventListener("mousemove", (event) => this.point(event));
    canvas.addEventListener("mouseleave", () => this.leave());
    canvas.addEventListener("click", (event) => this.click(event));
  }

  // `order` lists the indexes of traces in the data in drawing order.
  show(data, order, style) {
    Object.assign(this, { data, order, style, selected: null, hover: null, marked: -1 });
    this.measure();
    this.scroller.scrollTop = 0;
    this.resize();
    // Start at the newest commits.
    this.scroller.scrollLeft = this.scroller.scrollWidth;
    this.draw();
  }

  // Measures the width of names, using a sample of them.
  measure() {
    const context = this.canvas.getContext("2d");
    const step = Math.ceil(this.order.length / 400 || 1);
    const some = this.order.filter((_, at) => at % step === 0).map((at) => this.data.traces[at]);
    const widest = (name) => Math.max(0, ...some.map((trace) => context.measureText(name(trace)).width));
    context.font = font(600);
    this.testWidth = Math.min(TEST_MAX, Math.ceil(widest(this.style.test)) + 12);
    context.font = font();
    this.restWidth = Math.min(REST_MAX, Math.ceil(widest(this.style.rest)) + 34);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    if (this.data) {
      // Names take at most half of the width.
      const wanted = EDGE + this.testWidth + this.restWidth;
      this.name = Math.round(Math.max(120, Math.min(wanted, width * 0.5)));
      this.rest = EDGE + Math.round(this.testWidth * Math.min(1, (this.name - EDGE) / (wanted - EDGE)));
      const columns = Math.max(1, this.data.columns.length);
      const space = width - this.name - EDGE;
      this.cell = Math.max(CELL_MIN, Math.min(CELL_MAX, space / columns));
      this.spacer.style.width = `${Math.floor(this.name + columns * this.cell) + (space / columns < CELL_MIN ? EDGE : 0)}px`;
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
    paint(this);
    if (this.data) this.on.painted?.();
  }

  // Returns the cell at a point: row -1 is the header, column -1 the name.
  at(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const column = x < this.name ? -1 : Math.floor((x - this.name + this.scroller.scrollLeft) / this.cell);
    const row = y < HEAD ? -1 : Math.floor((y - HEAD + this.scroller.scrollTop) / ROW);
    if (row >= this.order.length || column >= this.data.columns.length || (row < 0 && column < 0)) return null;
    return { row, column };
  }

  traceAt(row) {
    return this.data?.traces[this.order[row]];
  }

  point(event) {
    const position = this.at(event);
    if (position?.row !== this.hover?.row || position?.column !== this.hover?.column) {
      this.hover = position;
      this.paint();
    }
    this.on.hover(position, event);
  }

  leave() {
    this.hover = null;
    this.paint();
    this.on.hover(null);
  }

  click(event) {
    const position = this.at(event);
    if (!position) return;
    this.scroller.focus({ preventScroll: true });
    // With Shift, compare the previously selected commit with this one.
    if (event.shiftKey && this.selected?.column >= 0 && position.column >= 0) {
      this.marked = this.selected.column;
      position.row = -1;
    }
    this.select(position);
    this.on.open(position);
  }

  select(position) {
    this.selected = position;
    this.reveal(position);
    this.paint();
    this.on.select(position);
  }

  mark(column) {
    this.marked = column;
    this.paint();
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

  // Moves to the next cell of the row that differs from the one before it.
  change(direction) {
    const position = this.selected;
    if (!position || position.row < 0) return;
    const changes = changedColumns(this.traceAt(position.row).cells);
    const column =
      direction > 0 ? changes.find((at) => at > position.column) : changes.findLast((at) => at < position.column);
    if (column !== undefined) this.select({ row: position.row, column });
  }

  reveal({ row, column }) {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const shown = (from, size, space, start) => (from < start ? from : from + size > start + space ? from + size - space : start);
    if (row >= 0) this.scroller.scrollTop = shown(row * ROW, ROW, height - HEAD - 4, this.scroller.scrollTop);
    if (column >= 0) this.scroller.scrollLeft = shown(column * this.cell, this.cell, width - this.name - EDGE, this.scroller.scrollLeft);
  }

  page() {
    return Math.max(1, Math.floor((this.scroller.clientHeight - HEAD) / ROW) - 1);
  }
}
