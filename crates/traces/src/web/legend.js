// The legend below the grid explains the colours. When a trace is selected it
// lists the digests of its test.

import * as colours from "./colours.js";
import { element, short, swatch, testOf } from "./parts.js";

const LOUD_SHOWN = 4;
const DIGESTS_SHOWN = 7;

function item(...parts) {
  const box = element("span", "item");
  box.append(...parts);
  return box;
}

const thread = () => element("span", "thread");
const dot = (style) => element("span", `dot ${style}`);

export function legend(box, state, trace) {
  const items = state.data.kind === "numbers" ? numbers() : trace ? ofTest(state, trace) : ofAll(state);
  const keys = item(element("kbd", "", "← →"), "move", element("kbd", "", "[ ]"), "changes", element("kbd", "", "?"), "all keys");
  keys.classList.add("keys");
  box.replaceChildren(...items, element("span", "grow"), keys);
}

function ofAll(state) {
  const words = Object.values(state.data.names).map((word) => item(swatch(colours.wordColour(word)), word));
  const loud = element("span", "swatches");
  for (let rank = 1; rank <= LOUD_SHOWN; rank++) loud.append(swatch(colours.rankColour(rank)));
  const named = Object.keys(state.data.names).length;
  const digests = state.data.digests.length > named ? [item(swatch(colours.rankColour(0)), "most common of the test"), item(loud, "others")] : [];
  return [...digests, ...words, ...marks()];
}

function marks() {
  return [item(thread(), "no result"), item(dot("good"), "positive"), item(dot("bad"), "negative"), item(dot("hollow"), "untriaged at head")];
}

function ofTest(state, trace) {
  const test = testOf(trace.params, state);
  const ranked = [...(state.ranks.get(test)?.keys() ?? [])];
  const items = ranked.slice(0, DIGESTS_SHOWN).map((number) => {
    const digest = state.data.digests[number - 1];
    const entry = item(swatch(state.colourOf(trace, number)), element("span", "digest", state.data.names[digest] ?? short(digest).slice(0, 8)));
    entry.title = `${digest} ${state.labelOf(test, digest)}`;
    return entry;
  });
  if (ranked.length > DIGESTS_SHOWN) items.push(item(`${ranked.length - DIGESTS_SHOWN} more`));
  return [item(element("b", "", test)), ...items, item(thread(), "no result")];
}

function numbers() {
  const scale = element("span", "scale");
  for (let at = -3; at <= 3; at++) scale.append(swatch(colours.numberColour(at / 10)));
  return [item("30 % less", scale, "30 % more than the median of the trace"), item(thread(), "no number")];
}
