// The stream of events of this page: opened for topics, paused by hand and while the page
// is hidden, opened again after the server was away.

import { at } from "./parts.js";

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
    if (source === mine && mine.readyState !== EventSource.OPEN) dispatchEvent(new CustomEvent("stele:away"));
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
