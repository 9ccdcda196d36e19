// The detail panel for a cell, a trace or a commit.

import * as api from "./api.js";
import { shown } from "./chart.js";
import { chips, commitLine, element, idOf, many, nameOf, percent, person, pressed, short, swatch, testOf, when } from "./parts.js";

const SUSPECTS_SHOWN = 12;
const DIGESTS_SHOWN = 8;
const ROWS_SHOWN = 500;
const HISTORY_SHOWN = 300;

// Each request opens a new panel; a response for an earlier panel is dropped.
export class Detail {
  constructor(box, on) {
    Object.assign(this, { box, on, turn: 0 });
  }

  close() {
    this.turn++;
    this.box.hidden = true;
  }

  begin(title) {
    const turn = ++this.turn;
    this.box.hidden = false;
    this.box.replaceChildren();
    const close = element("button", "close", "×");
    close.setAttribute("aria-label", "close");
    close.title = "close (Esc)";
    close.addEventListener("click", () => this.on.close());
    this.box.append(close, element("h2", "", title));
    this.box.scrollTop = 0;
    return (parts) => turn === this.turn && this.box.append(...parts);
  }

  // Shows a cell: its result, its commit, and the commits that may have introduced
  // it. Without a column it shows the trace.
  async cell(state, trace, column) {
    const { data, table, testKey } = state;
    const test = trace.params[testKey];
    const add = this.begin(test ?? trace.id);
    const commit = data.columns[column];
    const cell = commit ? trace.cells[column] : null;
    add([chips(trace.params, test ? [testKey] : [])]);
    if (commit) add(this.result(state, trace, cell));
    if (commit) add([element("h3", "", `commit @${commit.index}`), this.commitRow(commit, column), element("div", "soft", when(commit.time))]);
    const bad = commit ? `@${commit.index}` : "";
    const origin = data.kind === "digests" ? api.bisect(table, { id: trace.id, bad }) : lastStep(state, trace, column);
    const [found, history] = await Promise.all([origin, api.trace(table, trace.id)]);
    add(suspects(found, state.unit));
    const options = Object.keys(history.options);
    if (options.length) add([element("h3", "", "options"), chips(history.options)]);
    add(data.kind === "digests" ? strip(state, trace, history, commit) : numbers(history));
    if (data.kind === "digests") add(this.digests(state, trace));
  }

  commitRow(commit, column) {
    const line = commitLine(commit);
    line.classList.add("link");
    return pressed(line, () => this.on.open({ row: -1, column }));
  }

  result(state, trace, cell) {
    const title = element("h3", "", "result");
    if (!cell && cell !== 0) return [title, element("div", "soft", "none at this commit")];
    if (state.data.kind === "numbers") return [title, element("div", "value-large", shown(cell, state.unit))];
    if (!cell) return [title, element("div", "soft", "none at this commit")];
    const digest = state.data.digests[cell - 1];
    const line = element("div", "row");
    line.append(swatch(state.colourOf(trace, cell)), element("span", "digest", state.data.names[digest] ?? digest));
    line.title = digest;
    const test = trace.params[state.testKey];
    return test === undefined ? [title, line] : [title, line, triage(state.labelOf(test, digest), (label) => this.on.triage(test, digest, label))];
  }

  // Lists all digests of the test, the most common first.
  digests(state, trace) {
    const test = testOf(trace.params, state);
    const ranked = [...(state.ranks.get(test) ?? [])];
    const total = ranked.reduce((sum, [, { count }]) => sum + count, 0);
    const rows = ranked.slice(0, DIGESTS_SHOWN).map(([number, { count }]) => {
      const digest = state.data.digests[number - 1];
      const label = state.labelOf(test, digest);
      const row = element("div", "row");
      row.append(
        swatch(state.colourOf(trace, number)),
        element("span", "digest name", state.data.names[digest] ?? short(digest)),
        element("span", `label ${label}`, label),
        element("span", "number", `${((100 * count) / total).toFixed(count === total ? 0 : 1)} %`),
      );
      row.title = digest;
      return pressed(row, () => this.on.findDigest(test, digest));
    });
    const left = ranked.length - rows.length;
    if (left > 0) rows.push(element("div", "soft", `and ${left.toLocaleString("en")} more`));
    return [element("h3", "", `digests of this test: ${ranked.length}`), ...rows];
  }

  // Shows a commit and its differences from the previous column, or from the
  // marked commit.
  async commit(state, column, marked) {
    const { columns } = state.data;
    const commit = columns[column];
    const add = this.begin(commit.subject || `@${commit.index}`);
    add([element("div", "digest", commit.hash ?? ""), element("div", "soft", [`@${commit.index}`, person(commit.author), when(commit.time)].filter(Boolean).join(" · "))]);
    const isMarked = marked >= 0 && marked !== column;
    const other = isMarked ? columns[marked] : columns[column - 1];
    const actions = element("div", "actions");
    const button = element("button", "", isMarked ? "compare with the previous commit" : "compare with another…");
    button.addEventListener("click", () => this.on.mark(isMarked ? -1 : column));
    actions.append(button);
    add([actions]);
    if (!other) return add([element("p", "soft", "This is the oldest commit shown.")]);
    const [from, to] = other.index < commit.index ? [other, commit] : [commit, other];
    const found = await api.diff(state.table, { from: `@${from.index}`, to: `@${to.index}`, q: state.query, kind: state.data.kind, limit: ROWS_SHOWN });
    const next = !isMarked && from.index + 1 === to.index;
    const title = next ? "changed by this commit" : `changed from @${from.index} to @${to.index}`;
    const known = (found.total + found.same).toLocaleString("en");
    add([element("h3", "", title), element("div", "diff", found.total ? `${found.total.toLocaleString("en")} of ${many(found.total + found.same, "trace")}` : `none of ${known} traces`)]);
    const numberOf = new Map(state.data.digests.map((digest, at) => [digest, at + 1]));
    const named = found.different.map((one) => [nameOf(one.params, state), one]).sort(([a], [b]) => (a < b ? -1 : 1));
    add(named.map(([name, one]) => this.difference(state, name, one, column, numberOf)));
    if (found.total > found.different.length) add([element("div", "soft", `and ${(found.total - found.different.length).toLocaleString("en")} more`)]);
  }

  difference(state, name, one, column, numberOf) {
    const row = element("div", "row");
    const id = idOf(one.params);
    const sign = one.before == null ? "new" : one.after == null ? "missing" : "";
    row.append(element("span", "name", name));
    if (state.data.kind === "digests") {
      const mark = (digest) => swatch(numberOf.has(digest) ? state.colourOf({ params: one.params }, numberOf.get(digest)) : "");
      if (one.before != null) row.append(mark(one.before));
      row.append(element("span", "soft", sign || "→"));
      if (one.after != null) row.append(mark(one.after));
    } else {
      const share = one.before && one.after != null ? one.after / one.before - 1 : 0;
      row.append(element("span", sign ? "soft" : share > 0 ? "up" : "down", sign || percent(share)));
    }
    row.title = `${id}\n${one.before ?? "no result"}\n${one.after ?? "no result"}`;
    return pressed(row, () => this.on.find(id, column));
  }
}

export function triage(label, choose) {
  const box = element("div", "triage");
  for (const choice of ["positive", "negative", "untriaged"]) {
    const button = element("button", "", choice);
    button.dataset.label = choice;
    button.title = `${choice} (${choice[0]})`;
    button.setAttribute("aria-pressed", String(label === choice));
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      choose(choice);
    });
    box.append(button);
  }
  return box;
}

// Returns the last step of a trace up to a column in the form of a bisection.
async function lastStep(state, trace, column) {
  await state.finding;
  const steps = state.stepsOf?.get(trace.id) ?? [];
  const step = steps.findLast(({ to }) => column < 0 || to <= column);
  if (!step) return { changed: false };
  const commits = await api.commits(state.table, { first: `@${step.good + 1}`, last: `@${step.bad}` });
  return { ...step, changed: true, suspects: commits };
}

// Lists the commits that may have introduced the result.
function suspects(found, unit) {
  if (!found.changed) return [element("h3", "", "since"), element("div", "soft", "no earlier change known")];
  const count = found.suspects.length;
  const parts = [element("h3", "", count === 1 ? "introduced by" : `introduced by one of ${count} commits`)];
  if (typeof found.before === "number") parts.push(element("div", "soft", `${shown(found.before, unit)} → ${shown(found.after, unit)}`));
  parts.push(...found.suspects.slice(0, SUSPECTS_SHOWN).map(commitLine));
  if (count > SUSPECTS_SHOWN) parts.push(element("div", "soft", `and ${count - SUSPECTS_SHOWN} more`));
  if (found.came_back) parts.push(element("div", "note", "The previous result occurs again later: the test may be flaky."));
  return parts;
}

function strip(state, trace, history, commit) {
  const numberOf = new Map(state.data.digests.map((digest, at) => [digest, at + 1]));
  const box = element("div", "strip");
  for (const [index, digest] of history.digests.slice(-HISTORY_SHOWN)) {
    const cell = element("span", index === commit?.index ? "here" : "");
    cell.style.background = numberOf.has(digest) ? state.colourOf(trace, numberOf.get(digest)) : "var(--faint)";
    cell.title = `@${index} ${state.data.names[digest] ?? digest}`;
    box.append(cell);
  }
  return [element("h3", "", `history: ${many(history.digests.length, "result")}`), box];
}

function numbers(history) {
  if (!history.numbers.length) return [];
  const text = `${many(history.numbers.length, "number")} since @${history.numbers[0][0]}`;
  return [element("h3", "", "history"), element("div", "soft", text)];
}
