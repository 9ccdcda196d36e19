// The slow calls of the server, and all methods.

import { get } from "/console/lib/api.js";
import { bytes, h, head, many, micros, table, when } from "/console/lib/parts.js";
import { empty } from "/console/lib/states.js";
import { methods } from "/console/pages/overview.js";

export async function show({ again }) {
  const data = await get("/calls");
  const longest = Math.max(1, ...data.calls.map((call) => call.total_micros));
  const reload = h("button", { onclick: again }, "read again");
  const list = data.calls.length
    ? h(
        "section",
        { class: "panel" },
        h("p", { class: "key-line" }, h("span", {}, h("i", {}), "until the first message of the response"), h("span", { class: "second" }, h("i", {}), "until the client had all of it")),
        calls(data.calls, longest),
      )
    : empty("No slow calls", "Calls that take longer than 100 ms appear here. There were none since the server started.");
  const box = h("div", { class: "page" }, head("Slow calls", data.calls.length ? `the last ${many(data.calls.length, "call")} over 100 ms` : null, reload), list, methods(data.methods));
  return { box };
}

function phases(call, longest) {
  const first = call.first_message_micros ?? call.total_micros;
  const [before, after] = [h("i", {}), h("i", {})];
  before.style.width = `${(100 * first) / longest}%`;
  after.style.width = `${(100 * (call.total_micros - first)) / longest}%`;
  return h("div", { class: "phases", role: "img", "aria-label": `${micros(first)} until the first message, ${micros(call.total_micros - first)} after it` }, before, after);
}

function calls(all, longest) {
  const short = (path) => path.split("/").at(-1);
  return table(
    [
      { name: "ended", show: (it) => when(it.at_millis * 1000).slice(0, 19) },
      { name: "method", mono: true, show: (it) => h("span", { title: it.method }, short(it.method)) },
      { name: "took", number: true, show: (it) => micros(it.total_micros) },
      { name: "phases", show: (it) => phases(it, longest) },
      { name: "result", show: (it) => (it.code === "Ok" ? "ok" : h("span", { class: "bad" }, it.code)) },
      { name: "received", number: true, show: (it) => bytes(it.received_bytes) },
      { name: "sent", number: true, show: (it) => bytes(it.sent_bytes) },
    ],
    all,
  );
}
