// The query builder: keys and values of the table as chips, and the text of
// the query. Either changes the other.

const VALUES_SHOWN = 60;

const quoted = (text) => encodeURIComponent(text).replaceAll("%20", " ").replaceAll("%2F", "/").replaceAll("%3A", ":");
const special = (value) => (/^[!~*=]/.test(value) ? `=${value}` : value);

function unquoted(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A query text as a map of keys to values as they are written.
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
  for (const [key, values] of keys) for (const value of values) parts.push(`${quoted(key)}=${quoted(value)}`);
  return parts.join("&");
}

// What a click makes of a value: chosen, turned around, let go. A list is
// either of wanted or of unwanted values.
export function toggled(values, value) {
  const plain = special(value);
  const negated = values[0]?.startsWith("!");
  const bare = values.map((one) => (negated && one.startsWith("!") ? one.slice(1) : one));
  const at = bare.indexOf(plain);
  if (at < 0) return negated ? mark([...bare, plain]) : [...values, plain];
  if (!negated && bare.length === 1) return mark(bare);
  const rest = bare.filter((_, place) => place !== at);
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
  constructor(box, input, form, changed) {
    Object.assign(this, { box, input, changed });
    this.params = {};
    this.open = new Set();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.draw();
      changed(this.text());
    });
    input.addEventListener("search", () => {
      if (!input.value) {
        this.draw();
        changed("");
      }
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
    // Few values are best shown at once; the test's name is found by typing.
    this.open = new Set(keys.filter((key) => params[key].length <= 12 || key === testKey));
    this.order = keys.sort((a, b) => (b === testKey) - (a === testKey) || params[a].length - params[b].length || (a < b ? -1 : 1));
    this.draw();
  }

  draw() {
    const chosen = parse(this.text());
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
      // What is chosen comes first, so that it is never out of sight.
      const first = found.filter((value) => state(chosen, value));
      const rest = found.filter((value) => !state(chosen, value)).slice(0, VALUES_SHOWN);
      list.replaceChildren(...[...first, ...rest].map((value) => this.value(key, value, chosen)));
      const left = found.length - first.length - rest.length;
      if (left > 0) list.append(element("span", "more", `and ${left.toLocaleString("en")} more`));
    };
    if (values.length > 12) {
      const find = element("input", "find");
      find.placeholder = `find a ${key}`;
      find.setAttribute("aria-label", `find a ${key}`);
      find.addEventListener("input", () => fill(find.value.toLowerCase()));
      box.append(find);
    }
    fill("");
    box.append(list);
    return box;
  }

  value(key, value, chosen) {
    const button = element("button", "value", value);
    button.title = value;
    button.dataset.state = state(chosen, value);
    button.addEventListener("click", () => {
      const keys = parse(this.text());
      const values = toggled(keys.get(key) ?? [], value);
      if (values.length) keys.set(key, values);
      else keys.delete(key);
      this.input.value = write(keys);
      this.draw();
      this.changed(this.text());
    });
    return button;
  }
}

export function element(name, style, text) {
  const made = document.createElement(name);
  if (style) made.className = style;
  if (text !== undefined) made.textContent = text;
  return made;
}
