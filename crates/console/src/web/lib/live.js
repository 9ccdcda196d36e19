// The stream of events of this page: opened for topics, paused by hand and while the page
// is hidden, opened again after the server was away.

import { at } from "./parts.js";

const REFUSED_MS = 10_000;
let source = null;
let wanted = null;
let paused = false;

function connect() {
  source?.close();
  source = null;
  if (!wanted || paused || document.hidden) return;
  const mine = new EventSource(`/console/v1/events?${wanted.query()}`);
  source = mine;
  for (const [name, take] of Object.entries(wanted.take)) {
    mine.addEventListener(name, (event) => source === mine && take(JSON.parse(event.data)));
  }
  mine.addEventListener("open", () => dispatchEvent(new CustomEvent("stele:here")));
  mine.addEventListener("error", () => {
    if (source !== mine) return;
    // The browser connects again by itself, unless the server has refused the stream.
    if (mine.readyState === EventSource.CONNECTING) dispatchEvent(new CustomEvent("stele:away"));
    else setTimeout(() => source === mine && connect(), REFUSED_MS);
  });
}

// Listens from now on, until another page listens.
export function listen(query, take) {
  wanted = { query, take };
  connect();
}

export function stop() {
  wanted = null;
  connect();
}

export function pause(value = !paused) {
  paused = value;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").title = paused ? "resume live updates (.)" : "pause live updates (.)";
  connect();
}

document.addEventListener("visibilitychange", connect);
addEventListener("stele:back", connect);
