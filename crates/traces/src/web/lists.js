// Lists shown instead of the grid: untriaged digests with the suspected commits,
// and lasting changes of numbers.

import { shown } from "./chart.js";
import { triage } from "./detail.js";
import { commitLine, element, many, percent, pressed, short, swatch } from "./parts.js";

const SUSPECTS_SHOWN = 4;

function card(open, ...parts) {
  const box = element("article", "card");
  box.append(...parts);
  return pressed(box, open);
}

function about(total, listed, what) {
  const left = total > listed ? `, first ${listed.toLocaleString("en")} shown` : "";
  return element("p", "about", `${what}${left}`);
}

export function blame(found, state, on) {
  if (!found.untriaged.length) return [nothing("All digests are triaged", "New digests will be listed here, with the commits that may have introduced them.")];
  const cards = found.untriaged.map((one) => {
    const title = element("h3");
    const number = state.data.digests.indexOf(one.digest) + 1;
    const colour = number ? state.colourOf({ params: { [state.testKey]: one.test } }, number) : "";
    const traces = element("span", "grow-text", many(one.traces, "trace"));
    title.append(swatch(colour), element("span", "", one.test), element("span", "digest soft", state.data.names[one.digest] ?? short(one.digest)), traces);
    const count = one.suspects.length;
    const lines = one.suspects.slice(0, SUSPECTS_SHOWN).map(commitLine);
    const first = element("div", "soft", count === 1 ? "introduced by" : `introduced by one of ${count} commits`);
    if (count > SUSPECTS_SHOWN) lines.push(element("div", "soft", `and ${count - SUSPECTS_SHOWN} more`));
    const marks = triage("untriaged", (label) => on.triage(one.test, one.digest, label));
    return card(() => on.findDigest(one.test, one.digest), title, first, ...lines, marks);
  });
  return [about(found.total, cards.length, `${many(found.total, "untriaged digest")}, the newest first`), ...cards];
}

export function steps(found, state, on) {
  if (!found.steps.length) return [nothing("No steps found", "Changes of numbers that exceed the noise will be listed here.")];
  const traces = new Map(state.data.traces.map((trace) => [trace.id, trace]));
  const cards = found.steps.map((one) => {
    const trace = traces.get(one.id);
    const unit = trace ? state.unitOf(trace) : "";
    const share = one.before ? one.after / one.before - 1 : 0;
    const title = element("h3");
    title.append(element("span", share > 0 ? "up" : "down", percent(share)), element("span", "", trace ? state.nameOf(trace) : one.id));
    const moved = element("div", "soft", `${shown(one.before, unit)} → ${shown(one.after, unit)}, ${one.score.toFixed(0)} standard errors`);
    const bad = state.data.columns.find((commit) => commit.index === one.bad);
    const parts = [title, moved];
    if (bad) parts.push(commitLine(bad));
    const others = one.bad - one.good - 1;
    if (others > 0) parts.push(element("div", "soft", `or ${others === 1 ? "the commit" : `one of ${others} commits`} before it, which has no number`));
    return card(() => on.find(one.id, one.bad), ...parts);
  });
  return [about(found.total, cards.length, `${many(found.total, "step")} in ${many(found.traces, "trace")}, the most significant first`), ...cards];
}

function nothing(title, text) {
  const box = element("div", "nothing");
  box.append(element("h2", "", title), element("p", "soft", text));
  return box;
}
