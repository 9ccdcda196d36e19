// A list of any length: only the rows in sight are elements. More rows are asked for when
// the end comes near. One row is current, and is moved with the arrow keys.

import { h } from "./parts.js";

const HEIGHT = 30;
const MARGIN = 8;

export class Rows {
  // `fill(row, item)` fills a row; `more()` returns a promise of whether it added items;
  // `open(item, index)` shows details.
  constructor(label, { fill, more, open }) {
    Object.assign(this, { fill, more, open, items: [], current: -1, drawn: new Map(), asking: false, ended: false });
    this.space = h("div", { class: "rows", role: "presentation" });
    this.box = h("div", { class: "list", tabIndex: 0, role: "listbox", "aria-label": label }, this.space);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.select(Number(row.dataset.index), true);
    });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  add(items, ended) {
    this.items.push(...items);
    this.ended = ended;
    this.draw();
  }

  // Draws again what is in sight.
  refresh() {
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.draw();
  }

  draw() {
    this.space.style.height = `${this.items.length * HEIGHT}px`;
    const top = this.box.scrollTop;
    const from = Math.max(0, Math.floor(top / HEIGHT) - MARGIN);
    const to = Math.min(this.items.length, Math.ceil((top + this.box.clientHeight) / HEIGHT) + MARGIN);
    for (const [index, row] of this.drawn) {
      if (index >= from && index < to) continue;
      row.remove();
      this.drawn.delete(index);
    }
    for (let index = from; index < to; index++) if (!this.drawn.has(index)) this.drawRow(index);
    if (!this.ended && !this.asking && to > this.items.length - 20) this.ask();
  }

  drawRow(index) {
    const row = h("div", { class: "row", id: `row-${index}`, role: "option", "data-index": index, "aria-posinset": index + 1, "aria-setsize": this.ended ? this.items.length : -1 });
    row.style.top = `${index * HEIGHT}px`;
    this.fill(row, this.items[index]);
    this.mark(row, index);
    this.drawn.set(index, row);
    this.space.append(row);
  }

  mark(row, index) {
    row.setAttribute("aria-selected", String(index === this.current));
    row.toggleAttribute("data-current", index === this.current);
  }

  async ask() {
    this.asking = true;
    try {
      await this.more();
    } finally {
      this.asking = false;
    }
  }

  select(index, open) {
    if (!this.items.length) return;
    const old = this.current;
    this.current = Math.max(0, Math.min(this.items.length - 1, index));
    const top = this.current * HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + HEIGHT > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + HEIGHT - this.box.clientHeight;
    this.draw();
    for (const one of [old, this.current]) if (this.drawn.has(one)) this.mark(this.drawn.get(one), one);
    this.box.setAttribute("aria-activedescendant", `row-${this.current}`);
    if (open) this.open(this.items[this.current], this.current);
  }

  key(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) this.select(this.current + moves[event.key], false);
    else if (event.key === "Enter" && this.current >= 0) this.open(this.items[this.current], this.current);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// A list with details beside it.
export class Split {
  constructor(rows) {
    this.rows = rows;
    this.detail = h("aside", { class: "detail", "aria-label": "details", tabIndex: -1, hidden: true });
    this.box = h("div", { class: "split" }, rows.box, this.detail);
  }

  show(title, ...children) {
    const close = h("button", { class: "close", title: "close (Esc)", "aria-label": "close", onclick: () => this.close() }, "×");
    this.detail.replaceChildren(h("header", {}, h("h2", {}, title), close), ...children.flat(9).filter(Boolean));
    this.detail.hidden = false;
    this.detail.scrollTop = 0;
  }

  close() {
    this.detail.hidden = true;
    this.rows.box.focus();
  }
}
