// Building blocks of the pages: elements, numbers and times as text.

// Creates an element. Properties that begin with "on" are listeners; `class` and `data-`,
// `aria-` and other names with a dash are attributes; children may be text or missing.
export function h(name, properties = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (key === "class") created.className = value;
    else if (key.includes("-") || key === "role" || key === "for" || key === "list") created.setAttribute(key, value);
    else created[key] = value;
  }
  created.append(...children.flat(9).filter((child) => child !== undefined && child !== null && child !== false));
  return created;
}

export const at = (id) => document.getElementById(id);
export const count = (number) => Math.round(number).toLocaleString("en");
export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

export function bytes(number) {
  if (number < 1024) return `${Math.round(number)} B`;
  let value = number;
  let unit = -1;
  for (; value >= 1024 && unit < 3; unit++) value /= 1024;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${["KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// Formats a rate: few digits, because it changes all the time.
export function rate(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  if (number >= 10 || number === 0) return count(number);
  return number.toFixed(1);
}

export function micros(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 1e6) return `${(number / 1e6).toFixed(number >= 1e7 ? 0 : 1)} s`;
  if (number >= 1e3) return `${(number / 1e3).toFixed(number >= 1e4 ? 0 : 1)} ms`;
  return `${Math.round(number)} µs`;
}

export function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60]];
  for (const [at, [name, length]] of units.entries()) {
    if (seconds < length) continue;
    const next = units[at + 1] ?? ["s", 1];
    const rest = Math.floor((seconds % length) / next[1]);
    return `${Math.floor(seconds / length)} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
  }
  return `${Math.floor(seconds)} s`;
}

export const when = (micros) => {
  const date = new Date(micros / 1000);
  return Number.isNaN(date.getTime()) ? `${micros} µs` : date.toISOString().replace("T", " ").replace(/\.000Z|Z/, "");
};

export const ago = (micros) => {
  const seconds = Date.now() / 1000 - micros / 1e6;
  return seconds < 0 ? "in the future" : `${span(Math.max(0, seconds))} ago`;
};

let toasting = 0;
export function toast(text) {
  at("toast").textContent = text;
  at("toast").hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => (at("toast").hidden = true), 3500);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`copied ${what}`);
  } catch {
    toast(text);
  }
}

// A menu of the ways to do the same elsewhere.
export function copyAs(ways) {
  const select = h("select", { "aria-label": "copy as" }, h("option", { value: "" }, "copy as…"), Object.keys(ways).map((way) => h("option", { value: way }, way)));
  select.addEventListener("change", () => {
    if (select.value) copy(ways[select.value](), select.value);
    select.value = "";
  });
  return select;
}

// Quotes a word for a shell.
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// The head of a page: the path to it, its name, and what can be done.
export function head(title, about, ...actions) {
  document.title = `${title} · Stele`;
  return h("div", { class: "head" }, h("h1", {}, title), about && h("span", { class: "soft" }, about), h("span", { class: "grow" }), actions);
}

export function crumbs(...links) {
  const parts = links.flatMap(([text, href], index) => [index ? h("span", { "aria-hidden": "true" }, "/") : null, h("a", { href }, text)]);
  return h("nav", { class: "crumbs", "aria-label": "path" }, parts);
}

export function table(columns, rows) {
  const number = (column) => (column.number ? "number" : column.mono ? "mono" : "");
  const header = h("tr", {}, columns.map((column) => h("th", { class: column.number && "number", scope: "col" }, column.name)));
  const body = rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: number(column) }, column.show(row)))));
  return h("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": "table" }, h("table", {}, h("thead", {}, header), h("tbody", {}, body)));
}
