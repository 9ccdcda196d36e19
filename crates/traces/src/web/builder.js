// The query builder: keys and values of the table as chips, and the text of
// the query, which are kept in sync.

import { element } from "./parts.js";

const VALUES_SHOWN = 60;
// Keys with more values than this have a search field.
const VALUES_FEW = 12;

const escape = (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`;
const quoted = (text, letters) => text.replace(letters, escape);
// Returns a pattern that matches exactly this text.
const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const special = (value) => (/^[!~*=]/.test(value) ? `=${value}` : value);

function unquoted(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Parses a query into a map of keys to values, with their operators.
export function parse(text) {
  const keys = new Map();
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    if (at < 1) continue;
    const key = unquoted(part.slice(0, at));
    if (!keys.has(key)) keys.set(key, []);
    keys.get(key).push(unquoted(part.slice(at + 1)));
  }
  return keys;
}

export function write(keys) {
  const parts = [];
  for (const [key, values] of keys) for (const value of values) parts.push(`${quoted(key, /[%&=]/g)}=${quoted(value, /[%&]/g)}`);
  return parts.join("&");
}

// Returns the values of a key after a click on a value, which cycles through
// selected, negated and not selected. A list is negated as a whole.
export function toggled(values, value) {
  const plain = special(value);
  const negated = values[0]?.startsWith("!");
  const bare = values.map((one) => (negated && one.startsWith("!") ? one.slice(1) : one));
  const at = bare.indexOf(plain);
  if (at < 0) return negated ? mark([...bare, plain]) : [...values, plain];
  if (!negated && bare.length === 1) return mark(bare);
  const rest = bare.filter((_, index) => index !== at);
  return negated ? mark(rest) : rest;
}

const mark = (values) => values.map((value, at) => (at === 0 ? `!${value}` : value));

function state(values, value) {
  if (!values?.length) return "";
  const negated = values[0].startsWith("!");
  const bare = values.map((one) => (negated && one.startsWith("!") ? one.slice(1) : one));
  return bare.includes(special(value)) ? (negated ? "no" : "yes") : "";
}

export class Builder {
  constructor({ box, input, form, clear }, changed) {
    Object.assign(this, { box, input, clear, changed });
    this.params = {};
    this.open = new Set();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.draw();
      changed(this.text());
    });
    clear.addEventListener("click", () => {
      this.set("");
      changed("");
    });
  }

  text() {
    return this.input.value.trim();
  }

  set(text) {
    this.input.value = text;
    this.draw();
  }

  show(params, testKey) {
    this.params = params;
    const keys = Object.keys(params);
    // Expand keys with few values, and the test key with its search field.
    this.open = new Set(keys.filter((key) => params[key].length <= VALUES_FEW || key === testKey));
    this.order = keys.sort((a, b) => (b === testKey) - (a === testKey) || params[a].length - params[b].length || (a < b ? -1 : 1));
    this.draw();
  }

  draw() {
    const chosen = parse(this.text());
    this.clear.hidden = !this.text();
    const scroll = this.box.scrollTop;
    this.box.replaceChildren(...(this.order ?? []).map((key) => this.key(key, chosen.get(key))));
    this.box.scrollTop = scroll;
  }

  key(key, chosen) {
    const values = this.params[key];
    const box = element("details", "key");
    box.open = this.open.has(key) || Boolean(chosen);
    box.addEventListener("toggle", () => (box.open ? this.open.add(key) : this.open.delete(key)));
    const summary = element("summary");
    summary.append(key, element("span", "many", values.length.toLocaleString("en")));
    box.append(summary);
    const list = element("div", "values");
    const fill = (wanted) => {
      const found = wanted ? values.filter((value) => value.toLowerCase().includes(wanted)) : values;
      // Selected values come first, so that they are always visible.
      const first = found.filter((value) => state(chosen, value));
      const rest = found.filter((value) => !state(chosen, value)).slice(0, VALUES_SHOWN);
      list.replaceChildren(...[...first, ...rest].map((value) => this.value(key, value, chosen)));
      const left = found.length - first.length - rest.length;
      if (left > 0) list.append(element("span", "more", `and ${left.toLocaleString("en")} more`));
    };
    if (values.length > VALUES_FEW) {
      const find = element("input", "find");
      find.placeholder = `find a ${key}; Enter selects all matches`;
      find.setAttribute("aria-label", `find a ${key}`);
      find.addEventListener("input", () => fill(find.value.toLowerCase()));
      find.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && find.value) this.choose(key, [`~(?i)${literal(find.value)}`]);
      });
      box.append(find);
    }
    // Typed values that do not occur in the table.
    const known = new Set(values.map(special));
    const odd = (chosen ?? []).filter((one) => !known.has(one.replace(/^!/, "")));
    for (const one of odd) {
      const chip = element("button", "value pattern", one);
      chip.title = "remove";
      chip.dataset.state = "yes";
      chip.addEventListener("click", () => this.choose(key, chosen.filter((other) => other !== one)));
      box.append(chip);
    }
    fill("");
    box.append(list);
    return box;
  }

  value(key, value, chosen) {
    const button = element("button", "value", value);
    button.title = value;
    button.dataset.state = state(chosen, value);
    button.setAttribute("aria-pressed", String(button.dataset.state !== ""));
    button.addEventListener("click", () => this.choose(key, toggled(parse(this.text()).get(key) ?? [], value)));
    return button;
  }

  choose(key, values) {
    const keys = parse(this.text());
    if (values.length) keys.set(key, values);
    else keys.delete(key);
    this.input.value = write(keys);
    this.draw();
    this.changed(this.text());
  }
}
