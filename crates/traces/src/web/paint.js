// Draws the grid: names on the left, commits at the top, and for each trace a
// line with its results.

import { theme } from "./colours.js";
import { day } from "./parts.js";

export const HEAD = 50;
export const ROW = 20;
// From this width on, results are dots on the line; below it, bars.
const DOTS_FROM = 13;
const GAP_FROM = 8;

export const font = (weight = 400, size = 12) =>
  `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;

export function paint(grid) {
  const { canvas, scroller } = grid;
  const context = canvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  const colours = theme();
  const view = { width: canvas.width / ratio, height: canvas.height / ratio, left: scroller.scrollLeft, top: scroller.scrollTop, colours };
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, view.width, view.height);
  if (!grid.data) return;
  view.x = (column) => Math.round(grid.name + column * grid.cell - view.left);
  view.y = (row) => HEAD + row * ROW - view.top;
  view.rows = [Math.max(0, Math.floor(view.top / ROW)), Math.min(grid.order.length, Math.ceil((view.top + view.height - HEAD) / ROW))];
  view.columns = [
    Math.max(0, Math.floor(view.left / grid.cell)),
    Math.min(grid.data.columns.length, Math.ceil((view.left + view.width - grid.name) / grid.cell)),
  ];
  context.textBaseline = "middle";
  stripes(context, grid, view);
  for (let row = view.rows[0]; row < view.rows[1]; row++) thread(context, grid, view, row);
  outlines(context, grid, view);
  names(context, grid, view);
  head(context, grid, view);
  corner(context, grid, view);
}

// Highlights the row and the column under the pointer and of the selection.
function stripes(context, grid, { x, y, width, height, colours }) {
  for (const [position, alpha] of [[grid.hover, 0.55], [grid.selected, 1]]) {
    if (!position) continue;
    context.globalAlpha = alpha;
    context.fillStyle = colours["accent-soft"];
    if (position.row >= 0) context.fillRect(0, y(position.row), width, ROW);
    if (position.column >= 0) context.fillRect(x(position.column), HEAD, x(position.column + 1) - x(position.column), height);
  }
  context.globalAlpha = 1;
}

function thread(context, grid, { x, y: yOf, columns, colours, width }, row) {
  const trace = grid.traceAt(row);
  const { cells } = trace;
  const y = yOf(row);
  const colour = grid.style.colours(trace);
  if (row > 0 && grid.style.test(grid.traceAt(row - 1)) !== grid.style.test(trace)) {
    context.fillStyle = colours.line;
    context.fillRect(0, y, width, 1);
  }
  const isPresent = (cell) => cell !== 0 && cell !== null;
  const [first, last] = [cells.findIndex(isPresent), cells.findLastIndex(isPresent)];
  if (first < 0) return;
  // Missing results are drawn as a line.
  const from = x(Math.max(first, columns[0]));
  context.fillStyle = colours.thread;
  if (last >= columns[0]) context.fillRect(from + 1, y + ROW / 2 - 1, Math.max(0, x(Math.min(last + 1, columns[1])) - from - 2), 2);
  if (grid.cell >= DOTS_FROM) dots(context, grid, { x, y, columns, colour, cells });
  else bars(context, grid, { x, y, columns, colour, cells });
}

function bars(context, grid, { x, y, columns: [start, end], colour, cells }) {
  const gap = grid.cell > GAP_FROM ? 1 : 0;
  // Without gaps, adjacent cells of one colour are drawn as one bar.
  for (let at = start; at < end; ) {
    const fill = colour(cells[at]);
    let next = at + 1;
    while (!gap && next < end && cells[next] === cells[at]) next++;
    if (fill) {
      context.fillStyle = fill;
      context.fillRect(x(at), y + 3, x(next) - x(at) - gap, ROW - 6);
    }
    at = next;
  }
}

function dots(context, grid, { x, y, columns: [start, end], colour, cells }) {
  const radius = Math.min(ROW / 2 - 3, grid.cell / 2 - 1.5);
  for (let at = start; at < end; at++) {
    const fill = colour(cells[at]);
    if (!fill) continue;
    context.fillStyle = fill;
    context.beginPath();
    context.arc((x(at) + x(at + 1)) / 2, y + ROW / 2, radius, 0, 2 * Math.PI);
    context.fill();
  }
}

function outlines(context, grid, { x, y, colours }) {
  for (const [position, colour, width] of [[grid.hover, colours.faint, 1], [grid.selected, colours.text, 2]]) {
    if (!position || position.row < 0 || position.column < 0) continue;
    const left = x(position.column);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(left - 0.5, y(position.row) + 1.5, x(position.column + 1) - left + 1, ROW - 3);
  }
}

function names(context, grid, view) {
  const { y: yOf, height, colours, rows: [first, last] } = view;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, grid.name - 6, height);
  context.save();
  context.beginPath();
  context.rect(0, HEAD, grid.name - 7, height - HEAD);
  context.clip();
  for (let row = first; row < last; row++) {
    const trace = grid.traceAt(row);
    const y = yOf(row);
    const chosen = grid.selected?.row === row;
    if (chosen || grid.hover?.row === row) {
      context.fillStyle = colours["accent-soft"];
      context.fillRect(0, y, grid.name, ROW);
    }
    badge(context, grid.style.badge(trace, colours), grid.rest + 5, y + ROW / 2);
    context.font = font();
    context.fillStyle = chosen ? colours.text : colours.soft;
    context.fillText(fitted(context, grid.style.rest(trace), grid.name - grid.rest - 24), grid.rest + 15, y + ROW / 2 + 0.5);
    testName(context, grid, view, row);
  }
  context.restore();
  context.fillStyle = colours.line;
  context.fillRect(grid.name - 7, 0, 1, height);
}

// Draws the name of a test once for all of its traces; it stays visible as long
// as one of them is.
function testName(context, grid, { y: yOf, colours, width, rows: [first] }, row) {
  const name = (at) => (grid.traceAt(at) ? grid.style.test(grid.traceAt(at)) : null);
  const begins = row === 0 || name(row - 1) !== name(row);
  if (begins && row > 0) {
    context.fillStyle = colours.line;
    context.fillRect(0, yOf(row), width, 1);
  }
  if (!begins && row !== first) return;
  const held = row === first && name(row + 1) === name(row);
  const y = held ? Math.max(yOf(row), HEAD) : yOf(row);
  context.font = font(600);
  context.fillStyle = colours.text;
  context.fillText(fitted(context, name(row), grid.rest - 14), 12, y + ROW / 2 + 0.5);
}

function badge(context, style, x, y) {
  if (!style) return;
  context.beginPath();
  context.arc(x, y, 3.2, 0, 2 * Math.PI);
  context.fillStyle = context.strokeStyle = style.colour;
  context.lineWidth = 1.2;
  if (style.hollow) context.stroke();
  else context.fill();
}

// Draws days, and for each commit the number of traces that it changed.
function head(context, grid, { x, left, width, colours, columns: [first, last] }) {
  context.fillStyle = colours.panel;
  context.fillRect(grid.name - 6, 0, width, HEAD);
  context.font = font(500, 11.5);
  let free = -Infinity;
  let today = first > 0 && left > 0 ? day(grid.data.columns[first]) : "";
  const most = grid.changes ? Math.max(1, ...grid.changes) : 1;
  for (let column = first; column < last; column++) {
    const commit = grid.data.columns[column];
    const [from, to] = [x(column), x(column + 1)];
    const its = day(commit);
    if (its !== today && from >= grid.name - 6) {
      today = its;
      if (from > free && from + context.measureText(its).width < width - 4) {
        context.fillStyle = colours.line;
        context.fillRect(from, 6, 1, HEAD - 6);
        context.fillStyle = colours.soft;
        context.fillText(its, from + 5, 13);
        free = from + context.measureText(its).width + 18;
      }
    }
    const pointed = grid.selected?.column === column || grid.hover?.column === column;
    const count = grid.changes?.[column] ?? 0;
    const tall = 3 + (count ? Math.max(3, Math.round((18 * count) / most)) : 0);
    context.fillStyle = pointed ? colours.text : count ? colours.accent : colours.thread;
    const gap = to - from > 3 ? 1 : 0;
    context.fillRect(from, HEAD - 4 - tall, Math.max(1, to - from - gap), tall);
    if (grid.marked === column) flag(context, (from + to) / 2, colours.bad);
  }
  context.fillStyle = colours.line;
  context.fillRect(0, HEAD - 1, width, 1);
}

// Marks the commit that others are compared with.
function flag(context, x, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(x - 5, 1);
  context.lineTo(x + 5, 1);
  context.lineTo(x, 9);
  context.fill();
}

function corner(context, grid, { colours }) {
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, grid.name - 7, HEAD - 1);
  context.font = font(600, 11.5);
  context.fillStyle = colours.soft;
  context.fillText(fitted(context, grid.style.titles[0], grid.rest - 14), 12, 13);
  context.fillText(fitted(context, grid.style.titles[1], grid.name - grid.rest - 24), grid.rest + 15, 13);
  context.font = font(400, 11);
  context.fillStyle = colours.faint;
  context.fillText(fitted(context, grid.style.count, grid.name - 30), 12, HEAD - 14);
}

// Truncates a text to a width.
function fitted(context, text, width) {
  const whole = context.measureText(text).width;
  if (whole <= width) return text;
  let length = Math.max(1, Math.floor((text.length * width) / whole));
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}
