// What is known about a cell, a trace or a commit, beside the grid; and the
// lists of blame and steps.

import * as api from "./api.js";
import { element } from "./builder.js";
import { shown } from "./chart.js";
import { cssColour } from "./colours.js";

export const short = (hash = "") => hash.slice(0, 10);
export const when = (time) => (time ? new Date(time * 1000).toISOString().replace("T", " ").slice(0, 16) : "");

export function commitLine(commit) {
  const line = element("div", "commit");
  line.append(
    element("span", "hash", commit.hash ? short(commit.hash) : `@${commit.index}`),
    element("span", "subject", commit.subject ?? "not registered"),
    element("span", "who", (commit.author ?? "").replace(/<.*>/, "").trim() || ""),
  );
  line.title = `@${commit.index} ${commit.hash ?? ""}\n${commit.author ?? ""}\n${when(commit.time)}`;
  return line;
}

function chips(params, hidden = []) {
  const box = element("div", "chips");
  for (const [key, value] of Object.entries(params)) {
    if (hidden.includes(key)) continue;
    const chip = element("span", "chip");
    chip.append(element("b", "", `${key} `), value);
    box.append(chip);
  }
  return box;
}

export function swatch(colour) {
  const box = element("span", "swatch");
  box.style.background = colour || cssColour("--line");
  return box;
}

// A panel of its own for each thing that was asked for; an answer that comes
// too late for it is dropped.
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
    close.addEventListener("click", () => this.on.close());
    this.box.append(close, element("h2", "", title));
    this.box.scrollTop = 0;
    return (parts) => turn === this.turn && this.box.append(...parts);
  }

  // A cell: its commit, its result, and what brought it.
  async cell(state, trace, column) {
    const { data, table, testKey } = state;
    const test = trace.params[testKey];
    const add = this.begin(test ?? trace.id);
    const commit = data.columns[column];
    add([chips(trace.params, test ? [testKey] : [])]);
    if (commit) add([element("h3", "", `commit @${commit.index}`), commitLine(commit), element("div", "soft", when(commit.time))]);
    const cell = commit ? trace.cells[column] : null;
    if (data.kind === "digests") {
      if (commit && !cell) add([element("h3", "", "result"), element("div", "soft", "none at this commit")]);
      if (cell) add(this.result(state, trace, cell));
      await this.suspects(state, trace, column, add);
    } else if (cell != null) {
      add([element("h3", "", "result"), element("div", "", shown(cell, state.unit))]);
    }
    const history = await api.trace(table, trace.id);
    const options = Object.keys(history.options);
    if (options.length) add([element("h3", "", "options"), chips(history.options)]);
    if (data.kind === "digests") add(this.strip(state, trace, history));
    else if (history.numbers.length) add([element("h3", "", "history"), element("div", "soft", `${history.numbers.length} numbers since @${history.numbers[0][0]}`)]);
  }

  result(state, trace, cell) {
    const digest = state.data.digests[cell - 1];
    const word = state.data.names[digest];
    const test = trace.params[state.testKey];
    const label = state.labelOf(test, digest);
    const line = element("div", "row");
    line.append(swatch(state.colourOf(trace, cell)), element("span", "digest", word ? `${word}` : digest));
    line.title = digest;
    const parts = [element("h3", "", "result"), line];
    if (test !== undefined) {
      const triage = element("div", "triage");
      for (const choice of ["positive", "negative", "untriaged"]) {
        const button = element("button", "", choice);
        button.dataset.label = choice;
        button.setAttribute("aria-pressed", String(label === choice));
        button.addEventListener("click", () => this.on.triage(test, digest, choice));
        triage.append(button);
      }
      parts.push(triage);
    }
    return parts;
  }

  // The commits that may have brought the digest of this cell.
  async suspects(state, trace, column, add) {
    const commit = state.data.columns[column];
    const found = await api.bisect(state.table, { id: trace.id, bad: commit ? `@${commit.index}` : "" });
    if (!found.changed) {
      add([element("h3", "", "since"), element("div", "soft", "the same for as long as it is known")]);
      return;
    }
    const lines = found.suspects.slice(0, 12).map(commitLine);
    const many = found.suspects.length;
    const title = many === 1 ? "brought by" : `brought by one of ${many} commits`;
    add([element("h3", "", title), ...lines]);
    if (many > lines.length) add([element("div", "soft", `and ${many - lines.length} more`)]);
    if (found.came_back) add([element("div", "soft", "The result before it came back later: it may be flaky.")]);
  }

  strip(state, trace, history) {
    const numbers = new Map(state.data.digests.map((digest, at) => [digest, at + 1]));
    const strip = element("div", "strip");
    for (const [index, digest] of history.digests.slice(-300)) {
      const cell = element("span");
      const number = numbers.get(digest);
      cell.style.background = number ? state.colourOf(trace, number) : cssColour("--faint");
      cell.title = `@${index} ${state.data.names[digest] ?? digest}`;
      strip.append(cell);
    }
    return [element("h3", "", `history, ${history.digests.length} results`), strip];
  }

  // A commit: what it changed against the column before it.
  async commit(state, column) {
    const commit = state.data.columns[column];
    const add = this.begin(commit.subject || `@${commit.index}`);
    add([element("div", "digest", commit.hash ?? ""), element("div", "soft", `@${commit.index} · ${commit.author ?? ""} · ${when(commit.time)}`)]);
    const before = state.data.columns[column - 1];
    if (!before) return;
    const found = await api.diff(state.table, { from: `@${before.index}`, to: `@${commit.index}`, q: state.query, kind: state.data.kind, limit: 300 });
    const since = before.index + 1 === commit.index ? "changed here" : `changed since @${before.index}`;
    add([element("h3", "", `${since}: ${found.total.toLocaleString("en")} of ${(found.total + found.same).toLocaleString("en")}`)]);
    add(found.different.map((one) => {
      const row = element("div", "row");
      const id = idOf(one.params);
      const sign = one.before == null ? "new" : one.after == null ? "gone" : "";
      row.append(element("span", "name", nameOf(one.params, state)), element("span", "soft", sign || change(one)));
      row.title = id;
      row.addEventListener("click", () => this.on.find(id, column));
      return row;
    }));
  }
}

function change(one) {
  if (typeof one.before !== "number" || !one.before) return "";
  const share = (one.after / one.before - 1) * 100;
  return `${share > 0 ? "+" : ""}${share.toFixed(1)} %`;
}

export function idOf(params) {
  const escaped = (text) => text.replace(/[%,=\u0000-\u001f\u007f]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
  // Keys come sorted from the server, and objects keep that order unless a
  // key is a whole number.
  const keys = Object.keys(params).sort((a, b) => compareBytes(a, b));
  return `,${keys.map((key) => `${escaped(key)}=${escaped(params[key])},`).join("")}`;
}

function compareBytes(a, b) {
  const [left, right] = [new TextEncoder().encode(a), new TextEncoder().encode(b)];
  for (let at = 0; at < Math.min(left.length, right.length); at++) if (left[at] !== right[at]) return left[at] - right[at];
  return left.length - right.length;
}

export function nameOf(params, { testKey, constant }) {
  const rest = Object.entries(params).filter(([key]) => key !== testKey && !constant?.has(key));
  const test = params[testKey];
  return [...(test === undefined ? [] : [test]), ...rest.map(([, value]) => value)].join(" · ") || Object.values(params).join(" · ");
}

export function blameCards(found, state, open) {
  return found.untriaged.map((one) => {
    const card = element("div", "card");
    const title = element("h3");
    const word = state.data?.names?.[one.digest];
    title.append(element("span", "", one.test), element("span", "digest about", word ?? short(one.digest)));
    const traces = `${one.traces} ${one.traces === 1 ? "trace" : "traces"}`;
    const many = one.suspects.length;
    card.append(title, element("div", "about", `${traces}, ${many === 1 ? "one commit" : `one of ${many} commits`}`));
    card.append(...one.suspects.slice(0, 4).map(commitLine));
    card.addEventListener("click", () => open(one));
    return card;
  });
}

export function stepCards(found, state, open) {
  return found.steps.map((one) => {
    const card = element("div", "card");
    const title = element("h3");
    const share = one.before ? (one.after / one.before - 1) * 100 : 0;
    const sign = element("span", share > 0 ? "up" : "down", `${share > 0 ? "+" : ""}${share.toFixed(1)} %`);
    title.append(sign, element("span", "", one.id.slice(1, -1).split(",").map((pair) => pair.split("=")[1]).join(" · ")));
    card.append(title, element("div", "about", `${shown(one.before)} → ${shown(one.after)}, between @${one.good} and @${one.bad}, ${one.score.toFixed(0)} standard errors`));
    card.addEventListener("click", () => open(one));
    return card;
  });
}
