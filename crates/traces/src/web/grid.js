// The grid: one canvas as large as what can be seen, drawn anew as it is
// scrolled. Only visible cells are looked at, however many traces there are.

import { places } from "./changes.js";
import { HEAD, ROW, font, paint } from "./paint.js";

// Cells are at least so wide, and at most; then the grid scrolls sideways,
// or leaves room.
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

  // `order` are the places of traces in the data, as they are to be drawn.
  show(data, order, style) {
    Object.assign(this, { data, order, style, selected: null, hover: null, marked: -1 });
    this.measure();
    this.scroller.scrollTop = 0;
    this.resize();
    // The newest commits are what people come for.
    this.scroller.scrollLeft = this.scroller.scrollWidth;
    this.draw();
  }

  // How wide names are, by a sample of them.
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
      // Names leave at least half of the room to the cells.
      const wanted = EDGE + this.testWidth + this.restWidth;
      this.name = Math.round(Math.max(120, Math.min(wanted, width * 0.5)));
      this.rest = EDGE + Math.round(this.testWidth * Math.min(1, (this.name - EDGE) / (wanted - EDGE)));
      const columns = Math.max(1, this.data.columns.length);
      const room = width - this.name - EDGE;
      this.cell = Math.max(CELL_MIN, Math.min(CELL_MAX, room / columns));
      this.spacer.style.width = `${Math.floor(this.name + columns * this.cell) + (room / columns < CELL_MIN ? EDGE : 0)}px`;
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

  // What lies under a point: a row of -1 is the head, a column of -1 the name.
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
    // With Shift, the commit chosen before is compared with this one.
    if (event.shiftKey && this.selected?.column >= 0 && place.column >= 0) {
      this.marked = this.selected.column;
      place.row = -1;
    }
    this.select(place);
    this.on.open(place);
  }

  select(place) {
    this.selected = place;
    this.reveal(place);
    this.paint();
    this.on.select(place);
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

  // To the next cell of the row that is not like the one before it.
  change(direction) {
    const place = this.selected;
    if (!place || place.row < 0) return;
    const changes = places(this.traceAt(place.row).cells);
    const column =
      direction > 0 ? changes.find((at) => at > place.column) : changes.findLast((at) => at < place.column);
    if (column !== undefined) this.select({ row: place.row, column });
  }

  reveal({ row, column }) {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const shown = (from, size, room, start) => (from < start ? from : from + size > start + room ? from + size - room : start);
    if (row >= 0) this.scroller.scrollTop = shown(row * ROW, ROW, height - HEAD - 4, this.scroller.scrollTop);
    if (column >= 0) this.scroller.scrollLeft = shown(column * this.cell, this.cell, width - this.name - EDGE, this.scroller.scrollLeft);
  }

  page() {
    return Math.max(1, Math.floor((this.scroller.clientHeight - HEAD) / ROW) - 1);
  }
}
