// The page. Its address contains the whole request; everything on the page is
// derived from it.

import * as api from "./api.js";
import { Builder } from "./builder.js";
import * as changes from "./changes.js";
import { Chart, shown } from "./chart.js";
import * as colours from "./colours.js";
import { Detail } from "./detail.js";
import { Grid } from "./grid.js";
import { listen } from "./keys.js";
import { legend } from "./legend.js";
import * as lists from "./lists.js";
import * as messages from "./messages.js";
import { commitLine, element, many, nameOf, restOf, short, swatch, testOf, when } from "./parts.js";

const LISTED = 300;
const at = (id) => document.getElementById(id);
const DEFAULTS = { q: "", kind: "digests", n: "256", label: "", changed: "", view: "grid" };
const request = { table: "", ...DEFAULTS };
const state = { data: null, table: "", testKey: "name", query: "", unit: "", labelOf, colourOf, unitOf, nameOf: (trace) => nameOf(trace.params, state) };
let loading = null;
let started = 0;

const builder = new Builder(
  { box: at("builder"), input: at("query"), form: at("query-form"), clear: at("clear") },
  (text) => change({ q: text }),
);
const detail = new Detail(at("detail"), { close: closeDetail, triage, find, findDigest, open: chosen, mark });
const grid = new Grid(at("scroller"), at("canvas"), at("spacer"), { hover: tip, select: selected, open: opened, painted });
const chart = new Chart(at("chart"), {
  hover: (point, event) => (point ? messages.tip(pointLines(point), event) : messages.hideTip()),
  open: (point) => chosen({ row: Math.max(0, grid.selected?.row ?? 0), column: point.column }),
});

// The address.

function readAddress() {
  Object.assign(request, DEFAULTS);
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(request)) if (given.has(name)) request[name] = given.get(name);
}

function change(changed) {
  Object.assign(request, changed);
  const kept = Object.entries(request).filter(([, value]) => value !== "");
  history.pushState(null, "", `#${new URLSearchParams(kept)}`);
  follow();
}

function follow() {
  at("count").value = request.n;
  at("label").value = request.label;
  at("changed").checked = request.changed !== "";
  at("label-field").hidden = request.kind !== "digests";
  at("tab-blame").hidden = request.kind !== "digests";
  at("tab-steps").hidden = request.kind !== "numbers";
  for (const button of at("kind").children) button.setAttribute("aria-pressed", String(button.dataset.value === request.kind));
  markTab();
  builder.set(request.q);
  load().catch(failed);
}

function markTab() {
  for (const tab of document.querySelectorAll(".tabs [role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.view === request.view));
}

// Loading.

async function load() {
  loading?.abort();
  const mine = (loading = new AbortController());
  const since = performance.now();
  // Frames painted before the response arrives do not count.
  started = 0;
  delete document.body.dataset.paintedMs;
  delete document.body.dataset.failed;
  document.body.classList.add("loading");
  if (state.table !== request.table) await openTable(request.table);
  const label = request.kind === "digests" ? request.label : "";
  const data = await api.grid(request.table, { q: request.q, kind: request.kind, n: request.n, label, options: "true" }, mine.signal);
  if (mine.signal.aborted) return;
  document.body.classList.remove("loading");
  started = since;
  display(data);
  if (request.view !== "grid") await list();
}

async function openTable(name) {
  const [info, set] = await Promise.all([api.table(name), api.params(name)]);
  state.table = name;
  state.testKey = info.settings.test_key;
  state.hasCommits = info.head != null;
  at("table").value = name;
  builder.show(set.params, state.testKey);
  builder.set(request.q);
}

function painted() {
  if (!started || !state.data) return;
  document.body.dataset.paintedMs = Math.round(performance.now() - started);
  document.body.dataset.traces = state.data.traces.length;
  started = 0;
}

function display(data) {
  Object.assign(state, { data, query: request.q, middles: new Map(), stepsOf: undefined });
  state.ranks = data.kind === "digests" ? colours.ranks(data, state.testKey) : new Map();
  const first = data.traces[0]?.params ?? {};
  const constant = Object.keys(first).filter((key) => data.traces.every((trace) => trace.params[key] === first[key]));
  state.constant = new Set(data.traces.length > 1 ? constant : []);
  let order = data.traces.map((_, position) => position);
  if (request.changed) order = order.filter((position) => changes.hasChange(data.traces[position].cells));
  // Group the traces of one test.
  const names = data.traces.map((trace) => state.nameOf(trace));
  order.sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : a - b));
  closeDetail();
  showView(order.length > 0);
  draw(order);
  const left = data.total > data.traces.length ? ` (first ${data.traces.length.toLocaleString("en")} shown)` : "";
  const hidden = order.length < data.traces.length ? `, ${order.length.toLocaleString("en")} changed` : "";
  at("summary").textContent = `${many(data.total, "trace")}${left} × ${many(data.columns.length, "commit")}${hidden}`;
}

function draw(order) {
  const { data } = state;
  const rest = [...new Set(data.traces.slice(0, 200).flatMap((trace) => Object.keys(trace.params)))];
  const titles = [state.testKey, rest.filter((key) => key !== state.testKey && !state.constant.has(key)).join(" · ")];
  grid.changes = data.kind === "digests" ? changes.perColumn(data, order) : null;
  grid.show(data, order, {
    test: (trace) => testOf(trace.params, state),
    rest: (trace) => restOf(trace.params, state) || (testOf(trace.params, state) ? "" : state.nameOf(trace)),
    colours: (trace) => (cell) => colourOf(trace, cell),
    count: data.kind === "digests" ? "changed traces per commit" : "steps per commit",
    badge,
    titles,
  });
  if (order.length) legend(at("legend"), state, null);
  if (data.kind === "numbers" && order.length) selected({ row: 0, column: -1 });
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
  return colours.rankColour(state.ranks.get(testOf(trace.params, state))?.get(cell)?.rank ?? 0);
}

function middleOf(trace) {
  if (!state.middles.has(trace)) {
    const numbers = trace.cells.filter((cell) => cell !== null).sort((a, b) => a - b);
    state.middles.set(trace, numbers[Math.floor(numbers.length / 2)] ?? 0);
  }
  return state.middles.get(trace);
}

function unitOf(trace) {
  const { options, params } = trace;
  return options?.unit ?? params.unit ?? (/time|mean|median/.test(params.measure ?? "") ? "ns" : "");
}

function labelOf(test, digest) {
  return state.data.labels[test]?.[digest] ?? "untriaged";
}

function badge(trace, { good, bad, faint }) {
  if (state.data.kind !== "digests") return null;
  const newest = trace.cells.findLast((cell) => cell !== 0);
  const test = trace.params[state.testKey];
  if (!newest || test === undefined) return null;
  const digest = state.data.digests[newest - 1];
  const label = labelOf(test, digest);
  // Passed and skipped tests need no triage.
  if (label === "untriaged" && ["passed", "skipped"].includes(state.data.names[digest])) return null;
  return label === "untriaged" ? { colour: faint, hollow: true } : { colour: label === "positive" ? good : bad };
}

// Selection.

function selected({ row, column }) {
  if (!state.data) return;
  const trace = row >= 0 ? grid.traceAt(row) : null;
  legend(at("legend"), state, column >= 0 || grid.selected ? trace : null);
  // For screen readers, which cannot read the canvas.
  if (trace && column >= 0) at("announcement").textContent = cellLines(trace, column).map((line) => line.textContent).join(", ");
  if (state.data.kind !== "numbers" || !trace) return;
  const points = trace.cells.map((number, position) => [position, number]).filter(([, number]) => number !== null);
  state.unit = unitOf(trace);
  chart.show(state.nameOf(trace), state.unit, points, state.data.columns, state.stepsOf?.get(trace.id) ?? [], column);
  if (state.stepsOf === undefined) state.finding = findSteps().catch(reportError);
}

// Finds the steps of all traces shown, once per load.
async function findSteps() {
  const { data } = state;
  state.stepsOf = new Map();
  const found = await api.steps(state.table, { q: request.q, n: request.n });
  if (data !== state.data) return;
  const column = new Map(data.columns.map((commit, position) => [commit.index, position]));
  grid.changes = new Uint32Array(data.columns.length);
  for (const step of found.steps) {
    const located = { ...step, from: column.get(step.good), to: column.get(step.bad) };
    state.stepsOf.set(step.id, [...(state.stepsOf.get(step.id) ?? []), located]);
    grid.changes[located.to]++;
  }
  for (const steps of state.stepsOf.values()) steps.sort((a, b) => a.from - b.from);
  grid.paint();
  if (grid.order.length) selected(grid.selected?.row >= 0 ? grid.selected : { row: 0, column: -1 });
}

function opened(position) {
  messages.hideTip();
  const work = position.row < 0 ? detail.commit(state, position.column, grid.marked) : detail.cell(state, grid.traceAt(position.row), position.column);
  work.catch(reportError);
}

function chosen(position) {
  grid.select(position);
  opened(position);
}

function mark(column) {
  grid.mark(column);
  if (column >= 0) messages.toast("Select another commit to compare with.");
  else if (grid.selected) opened({ row: -1, column: grid.selected.column });
}

function closeDetail() {
  detail.close();
  document.body.classList.remove("filtering");
  if (grid.marked >= 0) grid.mark(-1);
}

function find(id, column) {
  const row = grid.order.findIndex((position) => state.data.traces[position].id === id);
  if (row < 0) return messages.toast("That trace is not shown.");
  showGrid();
  chosen({ row, column });
}

// Selects the first trace with this digest, at the commit that introduced it.
function findDigest(test, digest) {
  const number = state.data.digests.indexOf(digest) + 1;
  const has = ({ params, cells }) => testOf(params, state) === test && cells.includes(number);
  const row = number ? grid.order.findIndex((position) => has(state.data.traces[position])) : -1;
  if (row < 0) return messages.toast("The traces of that digest are not shown.");
  showGrid();
  chosen({ row, column: grid.traceAt(row).cells.indexOf(number) });
}

async function triage(test, digest, label) {
  try {
    await api.label(state.table, { test, digest, label, expected: labelOf(test, digest), by: "" });
    (state.data.labels[test] ??= {})[digest] = label;
    grid.paint();
    if (request.view !== "grid") await list();
    else if (!at("detail").hidden && grid.selected) opened(grid.selected);
    messages.toast(`marked ${label}`);
  } catch (error) {
    reportError(error);
  }
}

function triageSelected(label) {
  const position = grid.selected;
  if (!position || position.row < 0 || state.data?.kind !== "digests") return;
  const trace = grid.traceAt(position.row);
  const cell = trace.cells[position.column];
  const test = trace.params[state.testKey];
  if (cell && test !== undefined) triage(test, state.data.digests[cell - 1], label);
}

// Views.

// Shows the grid, a notice if the grid is empty, or a list.
function showView(some) {
  const isGrid = request.view === "grid";
  at("list").hidden = isGrid;
  at("scroller").hidden = at("legend").hidden = !isGrid || !some;
  at("chart-box").hidden = !isGrid || !some || request.kind !== "numbers";
  if (isGrid && !some) showEmpty();
  else messages.hideNotice();
}

function showGrid() {
  if (request.view === "grid") return;
  request.view = "grid";
  markTab();
  showView(grid.order.length > 0);
  grid.resize();
}

async function list() {
  const box = at("list");
  const mine = loading;
  box.replaceChildren(element("p", "soft", "…"));
  const args = { q: request.q, n: request.n, limit: LISTED };
  const column = (index) => state.data.columns.findIndex((commit) => commit.index === index);
  const cards =
    request.view === "blame"
      ? lists.blame(await api.blame(request.table, args), state, { triage, findDigest })
      : lists.steps(await api.steps(request.table, args), state, { find: (id, index) => find(id, column(index)) });
  if (mine === loading) box.replaceChildren(...cards);
}

// Notices that replace the grid.

function showEmpty() {
  const other = request.kind === "digests" ? "numbers" : "digests";
  const turn = [`show ${other}`, () => change({ kind: other, view: "grid" })];
  if (request.q || request.label || request.changed) {
    const clear = ["clear filters", () => change({ q: "", label: "", changed: "" })];
    const text = request.changed && state.data.traces.length ? "No trace changed at these commits." : "No trace matches the filters at these commits.";
    return messages.showNotice({ title: "Nothing to show", text, actions: [clear, turn] });
  }
  const { table } = state;
  messages.showNotice({
    title: `No ${request.kind} in ${table} yet`,
    text: state.hasCommits ? "Commits are registered, but there are no results. Ingest some:" : "Ingest the commits of a repository and the results of its tests:",
    commands: [`stele traces ingest ${table} --repo . report.xml`, `stele traces ingest ${table} --repo . target/criterion`],
    actions: [turn],
  });
}

function showNoTables() {
  document.body.dataset.paintedMs = "0";
  at("scroller").hidden = true;
  messages.showNotice({
    title: "No traces yet",
    text: "Create a table, then ingest results of tests and benchmarks:",
    commands: ["stele traces init mytests", "stele traces ingest mytests --repo . report.xml"],
    actions: [["reload", () => start().catch(failed)]],
  });
}

function failed(error) {
  if (error.name === "AbortError") return;
  document.body.classList.remove("loading");
  document.body.dataset.failed = error.message;
  started = 0;
  at("summary").textContent = "";
  for (const id of ["scroller", "list", "legend", "chart-box"]) at(id).hidden = true;
  const actions = [["try again", () => (at("table").value ? follow() : start().catch(failed))]];
  if (request.q) actions.push(["clear query", () => change({ q: "" })]);
  messages.showNotice({ title: "Request failed", text: error.message, actions, failed: true });
}

function reportError(error) {
  if (error.name !== "AbortError") messages.toast(error.message);
}

// The tooltip.

function tip(position, event) {
  if (!position || position.column < 0) return messages.hideTip();
  const commit = state.data.columns[position.column];
  const lines = position.row >= 0 ? cellLines(grid.traceAt(position.row), position.column) : [];
  lines.push(commitLine(commit), element("div", "soft", [`@${commit.index}`, when(commit.time)].filter(Boolean).join(" · ")));
  const changed = grid.changes?.[position.column];
  if (position.row < 0 && changed) lines.push(element("div", "", `${many(changed, "trace")} changed`));
  messages.tip(lines, event);
}

function cellLines(trace, column) {
  const cell = trace.cells[column];
  const line = element("div", "line");
  if (state.data.kind === "numbers") line.append(swatch(colourOf(trace, cell)), cell === null ? "no number" : shown(cell, unitOf(trace)));
  else if (!cell) line.append(element("span", "soft", "no result"));
  else {
    const digest = state.data.digests[cell - 1];
    const test = trace.params[state.testKey];
    const label = test === undefined ? "" : labelOf(test, digest);
    line.append(swatch(colourOf(trace, cell)), element("span", "digest", state.data.names[digest] ?? short(digest)), " ", element("span", `label ${label}`, label));
  }
  const lines = [element("div", "strong", state.nameOf(trace)), line];
  const options = Object.entries(trace.options ?? {});
  if (options.length) lines.push(element("div", "soft", options.map(([key, value]) => `${key} ${value}`).join(" · ").slice(0, 200)));
  return lines;
}

function pointLines({ column, number }) {
  return [element("div", "strong", shown(number, state.unit)), commitLine(state.data.columns[column])];
}

// Theme.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  grid.draw();
  chart.draw();
  if (state.data && grid.order.length) legend(at("legend"), state, grid.selected?.row >= 0 ? grid.traceAt(grid.selected.row) : null);
}

function switchTheme() {
  const theme = colours.isDark() ? "light" : "dark";
  localStorage.setItem("stele-theme", theme);
  setTheme(theme);
  if (!at("detail").hidden && grid.selected) opened(grid.selected);
}

// Startup.

function switchFilter() {
  document.body.classList.toggle("filtering");
}

const columnOf = () => grid.selected?.column ?? -1;

listen({
  ArrowLeft: (event) => grid.move(0, event.shiftKey ? -10 : -1),
  ArrowRight: (event) => grid.move(0, event.shiftKey ? 10 : 1),
  ArrowUp: (event) => grid.move(event.shiftKey ? -grid.page() : -1, 0),
  ArrowDown: (event) => grid.move(event.shiftKey ? grid.page() : 1, 0),
  PageUp: () => grid.move(-grid.page(), 0),
  PageDown: () => grid.move(grid.page(), 0),
  Home: () => grid.move(0, -Infinity),
  End: () => grid.move(0, Infinity),
  Enter: () => grid.selected && opened(grid.selected),
  Escape: () => closeDetail(),
  "[": () => grid.change(-1),
  "]": () => grid.change(1),
  "/": () => {
    document.body.classList.add("filtering");
    at("query").focus();
  },
  "?": () => at("help").showModal(),
  p: () => triageSelected("positive"),
  n: () => triageSelected("negative"),
  u: () => triageSelected("untriaged"),
  c: () => columnOf() >= 0 && opened({ row: -1, column: columnOf() }),
  m: () => columnOf() >= 0 && mark(columnOf()),
  o: () => change({ changed: request.changed ? "" : "1" }),
  t: switchTheme,
  g: () => change({ view: "grid" }),
  b: () => request.kind === "digests" && change({ view: "blame" }),
  s: () => request.kind === "numbers" && change({ view: "steps" }),
  d: () => change({ kind: request.kind === "digests" ? "numbers" : "digests", view: "grid" }),
});

for (const button of at("kind").children) button.addEventListener("click", () => change({ kind: button.dataset.value, view: "grid" }));
for (const tab of document.querySelectorAll(".tabs [role=tab]")) tab.addEventListener("click", () => change({ view: tab.dataset.view }));
at("table").addEventListener("change", (event) => change({ table: event.target.value, q: "" }));
at("count").addEventListener("change", (event) => change({ n: String(Math.max(1, Math.min(10000, Number(event.target.value) || 256))) }));
at("label").addEventListener("change", (event) => change({ label: event.target.value }));
at("changed").addEventListener("change", (event) => change({ changed: event.target.checked ? "1" : "" }));
at("theme").addEventListener("click", switchTheme);
at("filter-open").addEventListener("click", switchFilter);
at("veil").addEventListener("click", switchFilter);
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
  if (!tables.length) return showNoTables();
  if (!tables.some(({ table }) => table === request.table)) request.table = tables[0].table;
  follow();
}

start().catch(failed);
