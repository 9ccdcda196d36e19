// The page: what is asked for is in its address, and everything on it follows
// from that.

import * as api from "./api.js";
import { Builder, element } from "./builder.js";
import { Chart, shown } from "./chart.js";
import * as colours from "./colours.js";
import { Detail, blameCards, commitLine, nameOf, short, stepCards, swatch, when } from "./detail.js";
import { Grid } from "./grid.js";

const at = (id) => document.getElementById(id);
const asked = { table: "", q: "", kind: "digests", n: "256", label: "", changed: "", view: "grid" };
const state = { data: null, table: "", testKey: "name", query: "", labelOf, colourOf, unit: "" };
let loading = null;
let begun = 0;

const builder = new Builder(at("builder"), at("query"), at("query-form"), (text) => change({ q: text }));
const detail = new Detail(at("detail"), { close: closeDetail, triage, find });
const grid = new Grid(at("scroller"), at("canvas"), at("spacer"), {
  hover: tip,
  select: selected,
  open: opened,
  painted: () => {
    if (!begun || !state.data) return;
    document.body.dataset.paintedMs = Math.round(performance.now() - begun);
    document.body.dataset.traces = state.data.traces.length;
    begun = 0;
  },
});
const chart = new Chart(at("chart"), {
  hover: (point, event) => (point ? showTip([pointLine(point)], event) : hideTip()),
  open: (point) => grid.selected && grid.select({ row: grid.selected.row, column: point.column }),
});

// The address.

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(asked)) if (given.has(name)) asked[name] = given.get(name);
}

function change(changes) {
  Object.assign(asked, changes);
  const kept = Object.entries(asked).filter(([, value]) => value !== "");
  history.pushState(null, "", `#${new URLSearchParams(kept)}`);
  follow();
}

function follow() {
  at("count").value = asked.n;
  at("label").value = asked.label;
  at("changed").checked = asked.changed !== "";
  at("label-field").hidden = asked.kind !== "digests";
  at("tab-blame").hidden = asked.kind !== "digests";
  at("tab-steps").hidden = asked.kind !== "numbers";
  for (const button of at("kind").children) button.setAttribute("aria-pressed", String(button.dataset.value === asked.kind));
  for (const tab of document.querySelectorAll(".tabs [role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.view === asked.view));
  builder.set(asked.q);
  load().catch(told);
}

// Loading.

async function load() {
  loading?.abort();
  const mine = (loading = new AbortController());
  begun = performance.now();
  delete document.body.dataset.paintedMs;
  at("summary").textContent = "…";
  if (state.table !== asked.table) await openTable(asked.table);
  const args = { q: asked.q, kind: asked.kind, n: asked.n, label: asked.kind === "digests" ? asked.label : "", options: "true" };
  let data;
  try {
    data = await api.grid(asked.table, args, mine.signal);
  } catch (error) {
    if (mine.signal.aborted) return;
    at("summary").textContent = "";
    throw error;
  }
  if (mine.signal.aborted) return;
  showView();
  take(data);
  if (asked.view !== "grid") await list();
}

async function openTable(name) {
  const [info, set] = await Promise.all([api.table(name), api.params(name)]);
  state.table = name;
  state.testKey = info.settings.test_key;
  at("table").value = name;
  builder.show(set.params, state.testKey);
  builder.set(asked.q);
}

function take(data) {
  state.data = data;
  state.query = asked.q;
  state.ranks = data.kind === "digests" ? colours.ranks(data, state.testKey) : null;
  state.middles = new Map();
  state.stepsOf = undefined;
  const first = data.traces[0]?.params ?? {};
  const constant = Object.keys(first).filter((key) => data.traces.every((trace) => trace.params[key] === first[key]));
  state.constant = new Set(data.traces.length > 1 ? constant : []);
  let order = data.traces.map((_, place) => place);
  if (asked.changed) order = order.filter((place) => hasChange(data.traces[place].cells));
  // The traces of one test side by side.
  const names = data.traces.map((trace) => nameOf(trace.params, state));
  order.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b));
  draw(order);
  closeDetail();
  const total = data.total.toLocaleString("en");
  const left = data.total > data.traces.length ? ` (the first ${data.traces.length.toLocaleString("en")} shown)` : "";
  at("summary").textContent = `${total} ${data.total === 1 ? "trace" : "traces"}${left} × ${data.columns.length} commits`;
  at("empty").hidden = order.length > 0 || asked.view !== "grid";
  if (!order.length) sayEmpty("No results here", asked.q ? "Nothing matches this query at these commits." : "Nothing has been ingested at these commits.");
}

function draw(order) {
  grid.show(state.data, order, {
    name: (trace) => nameOf(trace.params, state),
    group: (trace) => trace.params[state.testKey],
    colours: (trace) => (cell) => colourOf(trace, cell),
    badge,
  });
  at("chart-box").hidden = state.data.kind !== "numbers" || asked.view !== "grid" || !order.length;
  if (state.data.kind === "numbers" && order.length) selected({ row: 0, column: -1 });
}

function hasChange(cells) {
  let last = null;
  for (const cell of cells) {
    if (cell === 0 || cell === null) continue;
    if (last !== null && cell !== last) return true;
    last = cell;
  }
  return false;
}

// Colours and labels.

function colourOf(trace, cell) {
  if (cell === 0 || cell === null || cell === undefined) return "";
  if (state.data.kind === "numbers") {
    const middle = middleOf(trace);
    return colours.numberColour(middle ? cell / middle - 1 : 0);
  }
  const word = state.data.names[state.data.digests[cell - 1]];
  if (word) return colours.wordColour(word);
  return colours.rankColour(state.ranks.get(trace.params[state.testKey] ?? "")?.get(cell) ?? 0);
}

function middleOf(trace) {
  if (!state.middles.has(trace)) {
    const numbers = trace.cells.filter((cell) => cell !== null).sort((a, b) => a - b);
    state.middles.set(trace, numbers[Math.floor(numbers.length / 2)] ?? 0);
  }
  return state.middles.get(trace);
}

function labelOf(test, digest) {
  return state.data.labels[test]?.[digest] ?? "untriaged";
}

function badge(trace) {
  if (state.data.kind !== "digests") return null;
  const newest = trace.cells.findLast((cell) => cell !== 0);
  const test = trace.params[state.testKey];
  if (!newest || test === undefined) return null;
  const label = labelOf(test, state.data.digests[newest - 1]);
  if (label === "untriaged") return { colour: colours.cssColour("--faint"), hollow: true };
  return { colour: colours.cssColour(label === "positive" ? "--good" : "--bad") };
}

// Choosing.

function selected({ row, column }) {
  if (state.data?.kind !== "numbers" || row < 0) return;
  const trace = grid.traceAt(row);
  const points = trace.cells.map((number, place) => [place, number]).filter(([, number]) => number !== null);
  const name = nameOf(trace.params, state);
  state.unit = trace.options?.unit ?? trace.params.unit ?? (trace.params.measure?.match(/time|mean|median/) ? "ns" : "");
  chart.show(name, state.unit, points, state.data.columns, state.stepsOf?.get(trace.id) ?? [], column);
  if (state.stepsOf === undefined) findSteps().catch(told);
}

// Steps of all traces that are shown, once for each load.
async function findSteps() {
  const data = state.data;
  state.stepsOf = new Map();
  const found = await api.steps(state.table, { q: asked.q, n: asked.n });
  if (data !== state.data) return;
  const column = new Map(data.columns.map((commit, place) => [commit.index, place]));
  for (const step of found.steps) {
    const placed = { ...step, from: column.get(step.good), to: column.get(step.bad) };
    state.stepsOf.set(step.id, [...(state.stepsOf.get(step.id) ?? []), placed]);
  }
  if (grid.order.length) selected(grid.selected?.row >= 0 ? grid.selected : { row: 0, column: -1 });
}

function opened(place) {
  hideTip();
  const work = place.row < 0 ? detail.commit(state, place.column) : detail.cell(state, grid.traceAt(place.row), place.column);
  work.catch(told);
}

function closeDetail() {
  detail.close();
}

function find(id, column) {
  const row = grid.order.findIndex((place) => state.data.traces[place].id === id);
  if (row < 0) return told(new Error("That trace is not among those shown."));
  grid.select({ row, column });
  opened({ row, column });
}

async function triage(test, digest, label) {
  try {
    await api.label(state.table, { test, digest, label, expected: labelOf(test, digest), by: "" });
    (state.data.labels[test] ??= {})[digest] = label;
    grid.paint();
    if (!at("detail").hidden && grid.selected) opened(grid.selected);
    toast(`marked ${label}`);
  } catch (error) {
    told(error);
  }
}

function triageSelected(label) {
  const place = grid.selected;
  if (!place || place.row < 0 || state.data?.kind !== "digests") return;
  const trace = grid.traceAt(place.row);
  const cell = trace.cells[place.column];
  const test = trace.params[state.testKey];
  if (cell && test !== undefined) triage(test, state.data.digests[cell - 1], label);
}

// Lists.

function showView() {
  const isGrid = asked.view === "grid";
  at("list").hidden = isGrid;
  at("scroller").hidden = !isGrid;
  at("chart-box").hidden = !isGrid || asked.kind !== "numbers" || !grid.order.length;
  at("empty").hidden = !isGrid || grid.order.length > 0;
}

async function list() {
  const box = at("list");
  box.replaceChildren(element("p", "soft", "…"));
  const args = { q: asked.q, n: asked.n, limit: 300 };
  if (asked.view === "blame") {
    const found = await api.blame(asked.table, args);
    const open = (one) => {
      const number = state.data.digests.indexOf(one.digest) + 1;
      const has = (place) => {
        const trace = state.data.traces[place];
        return trace.params[state.testKey] === one.test && trace.cells.includes(number);
      };
      const row = grid.order.findIndex(has);
      if (row < 0) return told(new Error("Its traces are not among those shown."));
      showGrid();
      const place = { row, column: grid.traceAt(row).cells.indexOf(number) };
      grid.select(place);
      opened(place);
    };
    const cards = blameCards(found, state, open);
    box.replaceChildren(...(cards.length ? cards : [element("p", "soft", "Every digest has been looked at.")]));
  } else {
    const found = await api.steps(asked.table, args);
    const column = (index) => state.data.columns.findIndex((commit) => commit.index === index);
    const open = (one) => {
      showGrid();
      find(one.id, column(one.bad));
    };
    const cards = stepCards(found, state, open);
    box.replaceChildren(...(cards.length ? cards : [element("p", "soft", "No number moved for good.")]));
  }
}

function showGrid() {
  asked.view = "grid";
  for (const tab of document.querySelectorAll(".tabs [role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.view === "grid"));
  showView();
  grid.resize();
}

// What is said beside the grid.

function tip(place, event) {
  if (!place || place.column < 0) return hideTip();
  const commit = state.data.columns[place.column];
  const lines = [];
  if (place.row >= 0) {
    const trace = grid.traceAt(place.row);
    const cell = trace.cells[place.column];
    const line = element("div", "line");
    if (state.data.kind === "numbers") line.append(swatch(colourOf(trace, cell)), cell === null ? "no number" : shown(cell, state.unit));
    else if (!cell) line.append("no result");
    else {
      const digest = state.data.digests[cell - 1];
      const label = trace.params[state.testKey] === undefined ? "" : labelOf(trace.params[state.testKey], digest);
      line.append(swatch(colourOf(trace, cell)), element("span", "digest", state.data.names[digest] ?? short(digest)), element("span", "soft", label));
    }
    lines.push(element("div", "", nameOf(trace.params, state)), line);
    const options = Object.entries(trace.options ?? {});
    if (options.length) lines.push(element("div", "soft", options.map(([key, value]) => `${key} ${value}`).join(" · ").slice(0, 200)));
  }
  lines.push(commitLine(commit), element("div", "soft", `@${commit.index} · ${when(commit.time)}`));
  showTip(lines, event);
}

function pointLine({ column, number }) {
  const commit = state.data.columns[column];
  const box = element("div");
  box.append(element("div", "", shown(number, state.unit)), commitLine(commit));
  return box;
}

function showTip(lines, event) {
  const box = at("tip");
  box.replaceChildren(...lines);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

function hideTip() {
  at("tip").hidden = true;
}

let toasting = 0;

function toast(text) {
  const box = at("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => (box.hidden = true), 3500);
}

function told(error) {
  if (error.name === "AbortError") return;
  toast(error.message);
}

function sayEmpty(title, text, code) {
  const box = at("empty");
  box.replaceChildren(element("h2", "", title), element("p", "", text));
  if (code) box.append(element("code", "", code));
}

// Dark and light.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  grid.draw();
  chart.draw();
}

function switchTheme() {
  const theme = colours.isDark() ? "light" : "dark";
  localStorage.setItem("stele-theme", theme);
  setTheme(theme);
}

// Keys.

const keys = {
  ArrowLeft: (event) => grid.move(0, event.shiftKey ? -10 : -1),
  ArrowRight: (event) => grid.move(0, event.shiftKey ? 10 : 1),
  ArrowUp: (event) => grid.move(event.shiftKey ? -grid.page() : -1, 0),
  ArrowDown: (event) => grid.move(event.shiftKey ? grid.page() : 1, 0),
  PageUp: () => grid.move(-grid.page(), 0),
  PageDown: () => grid.move(grid.page(), 0),
  Enter: () => grid.selected && opened(grid.selected),
  Escape: () => closeDetail(),
  "[": () => grid.change(-1),
  "]": () => grid.change(1),
  "/": () => at("query").focus(),
  "?": () => at("help").showModal(),
  p: () => triageSelected("positive"),
  n: () => triageSelected("negative"),
  u: () => triageSelected("untriaged"),
  t: switchTheme,
  g: () => change({ view: "grid" }),
  b: () => asked.kind === "digests" && change({ view: "blame" }),
  s: () => asked.kind === "numbers" && change({ view: "steps" }),
  d: () => change({ kind: asked.kind === "digests" ? "numbers" : "digests", view: "grid" }),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "Escape" && typing) event.target.blur?.();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target.closest("button, summary, a")) return;
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
});

// The beginning.

for (const button of at("kind").children) button.addEventListener("click", () => change({ kind: button.dataset.value, view: "grid" }));
for (const tab of document.querySelectorAll(".tabs [role=tab]")) tab.addEventListener("click", () => change({ view: tab.dataset.view }));
at("table").addEventListener("change", (event) => change({ table: event.target.value, q: "" }));
at("count").addEventListener("change", (event) => change({ n: String(Math.max(1, Math.min(10000, Number(event.target.value) || 256))) }));
at("label").addEventListener("change", (event) => change({ label: event.target.value }));
at("changed").addEventListener("change", (event) => change({ changed: event.target.checked ? "1" : "" }));
at("theme").addEventListener("click", switchTheme);
at("help-open").addEventListener("click", () => at("help").showModal());
addEventListener("popstate", () => {
  readAddress();
  follow();
});

async function start() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(localStorage.getItem("stele-theme") ?? (system.matches ? "dark" : "light"));
  readAddress();
  const tables = await api.tables();
  at("table").replaceChildren(...tables.map(({ table }) => new Option(table, table)));
  if (!tables.length) {
    at("empty").hidden = false;
    document.body.dataset.paintedMs = "0";
    return sayEmpty("No table of traces yet", "Make one and bring results:", "stele traces init mytests && stele traces ingest mytests --repo . report.xml");
  }
  if (!tables.some(({ table }) => table === asked.table)) asked.table = tables[0].table;
  follow();
}

start().catch(told);
