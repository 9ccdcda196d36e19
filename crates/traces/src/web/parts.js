// Building blocks of the page: elements, names of traces, commits.

import { theme } from "./colours.js";

export function element(name, style, text) {
  const created = document.createElement(name);
  if (style) created.className = style;
  if (text !== undefined) created.textContent = text;
  return created;
}

// Makes an element a button, which is activated by click, Enter or Space.
export function pressed(box, action) {
  box.tabIndex = 0;
  box.setAttribute("role", "button");
  box.addEventListener("click", action);
  box.addEventListener("keydown", (event) => {
    if ((event.key !== "Enter" && event.key !== " ") || event.target !== box) return;
    event.preventDefault();
    event.stopPropagation();
    action(event);
  });
  return box;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const short = (hash = "") => hash.slice(0, 10);
export const many = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
export const percent = (share) => `${share > 0 ? "+" : ""}${(share * 100).toFixed(1)} %`;
export const when = (time) => (time ? new Date(time * 1000).toISOString().replace("T", " ").slice(0, 16) : "");
export const person = (author = "") => author.replace(/<.*>/, "").trim() || author;

// Returns the day of a commit, or its index if it has no time.
export function day(commit) {
  if (!commit.time) return `@${commit.index}`;
  const date = new Date(commit.time * 1000);
  return `${MONTHS[date.getUTCMonth()]} ${date.getUTCDate()}`;
}

export function commitLine(commit) {
  const line = element("div", "commit");
  line.append(
    element("span", "hash", commit.hash ? short(commit.hash) : `@${commit.index}`),
    element("span", "subject", commit.subject || "no subject"),
    element("span", "who", person(commit.author)),
  );
  line.title = `@${commit.index} ${commit.hash ?? ""}\n${commit.author ?? ""}\n${when(commit.time)}`;
  return line;
}

export function chips(params, hidden = []) {
  const box = element("div", "chips");
  for (const [key, value] of Object.entries(params)) {
    if (hidden.includes(key)) continue;
    const chip = element("span", "chip");
    chip.append(element("b", "", key), value);
    box.append(chip);
  }
  return box;
}

export function swatch(colour) {
  const box = element("span", "swatch");
  box.style.background = colour || theme().thread;
  return box;
}

// The name of a trace: its test, and the params in which the traces shown differ.
export const testOf = (params, { testKey }) => params[testKey] ?? "";

export function restOf(params, { testKey, constant }) {
  const rest = Object.entries(params).filter(([key]) => key !== testKey && !constant?.has(key));
  return rest.map(([, value]) => value).join(" · ");
}

export function nameOf(params, state) {
  const parts = [testOf(params, state), restOf(params, state)].filter((part) => part !== "");
  return parts.join(" · ") || Object.values(params).join(" · ");
}

// Returns the id of params, escaped and ordered like on the server.
export function idOf(params) {
  const hex = (letter) => letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
  const escaped = (text) => text.replace(/[%,=\u0000-\u001f\u007f]/g, (letter) => `%${hex(letter)}`);
  const keys = Object.keys(params).sort(compareBytes);
  return `,${keys.map((key) => `${escaped(key)}=${escaped(params[key])},`).join("")}`;
}

function compareBytes(a, b) {
  const [left, right] = [a, b].map((text) => new TextEncoder().encode(text));
  const end = Math.min(left.length, right.length);
  for (let at = 0; at < end; at++) if (left[at] !== right[at]) return left[at] - right[at];
  return left.length - right.length;
}
