// What stands in the place of data: waiting, nothing there, an error.

import { h } from "./parts.js";

// Shows a waiting bar if the work takes longer than a moment.
export async function waiting(box, work) {
  const bar = h("div", { class: "waiting", role: "progressbar", "aria-label": "loading" });
  const timer = setTimeout(() => box.prepend(bar), 150);
  try {
    return await work;
  } finally {
    clearTimeout(timer);
    bar.remove();
  }
}

export function empty(title, text, commands = []) {
  return h("section", { class: "state" }, h("h2", {}, title), h("p", {}, text), commands.length > 0 && h("pre", { tabIndex: 0 }, commands.join("\n")));
}

const titles = {
  away: "The server is away",
  denied: "Not permitted",
  off: "Not on this server",
  not_found: "Not found",
  invalid: "That does not work",
  busy: "Too much at once",
};

// `heading` is "h1" if the state is all that a page shows.
export function failed(error, again, heading = "h2") {
  const retry = h("div", { class: "actions" }, again && h("button", { onclick: again }, "try again"), h("a", { class: "button", href: "/" }, "overview"));
  const quiet = error.kind === "off" || error.kind === "not_found";
  return h("section", { class: `state ${quiet ? "" : "failed"}`, role: "alert" }, h(heading, {}, titles[error.kind] ?? "That failed"), h("p", {}, error.message), retry);
}
