// Bytes: as the API sends them, as text that can be typed in again, and decoded.

import { h } from "./parts.js";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// Returns the bytes of a field, which is text or base64.
export function bytesOf(object, name) {
  if (typeof object[name] === "string") return new TextEncoder().encode(object[name]);
  const encoded = object[`${name}_base64`];
  return encoded === undefined ? new Uint8Array() : Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
}

// Returns bytes as a field of a request.
export function fieldOf(name, given) {
  let text = "";
  for (let from = 0; from < given.length; from += 8192) text += String.fromCharCode(...given.subarray(from, from + 8192));
  return { [`${name}_base64`]: btoa(text) };
}

const decoded = (given) => {
  try {
    return utf8.decode(given);
  } catch {
    return null;
  }
};

const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/u;
const hex = (byte) => `\\x${byte.toString(16).padStart(2, "0")}`;
const named = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

// Shows bytes as `stele read` does: letters as they are, other bytes as \xNN.
export function shown(given) {
  const text = decoded(given);
  if (text === null) return [...given].map((byte) => (byte > 31 && byte < 127 && byte !== 92 ? String.fromCharCode(byte) : named[String.fromCharCode(byte)] ?? hex(byte))).join("");
  let out = "";
  for (const letter of text) {
    if (named[letter]) out += named[letter];
    else if (hidden.test(letter)) out += [...new TextEncoder().encode(letter)].map(hex).join("");
    else out += letter;
  }
  return out;
}

// Reads what `shown` writes.
export function typed(text) {
  const out = [];
  const escapes = { n: 10, r: 13, t: 9, 0: 0, "\\": 92, "'": 39, '"': 34 };
  for (let from = 0; from < text.length; ) {
    if (text[from] !== "\\") {
      const letter = String.fromCodePoint(text.codePointAt(from));
      out.push(...new TextEncoder().encode(letter));
      from += letter.length;
      continue;
    }
    const code = /^\\x([0-9a-f]{2})/i.exec(text.slice(from, from + 4));
    const known = escapes[text[from + 1]];
    if (!code && known === undefined) throw new Error(`"${text.slice(from, from + 2)}" is no escape; write \\\\ for a backslash`);
    out.push(code ? parseInt(code[1], 16) : known);
    from += code ? 4 : 2;
  }
  return Uint8Array.from(out);
}

const view = (given) => new DataView(given.buffer, given.byteOffset, given.byteLength);
const image = (given) => {
  const begins = (...start) => start.every((byte, index) => given[index] === byte);
  if (begins(0x89, 0x50, 0x4e, 0x47)) return "image/png";
  if (begins(0xff, 0xd8, 0xff)) return "image/jpeg";
  if (begins(0x47, 0x49, 0x46, 0x38)) return "image/gif";
  return null;
};

// The ways to look at a value. `fits` decides which is chosen.
export const decoders = {
  json: {
    fits: (given, text) => text !== null && /^\s*[[{]/.test(text) && parsed(text) !== undefined,
    show: (given, text) => h("pre", { tabIndex: 0 }, JSON.stringify(parsed(text), null, 2)),
  },
  image: {
    fits: (given) => image(given) !== null,
    show: (given) => h("img", { alt: "the value as an image", src: `data:${image(given)};base64,${fieldOf("v", given).v_base64}` }),
  },
  int64: { fits: (given, text) => given.length === 8 && (text === null || hidden.test(text)), show: (given) => h("pre", { tabIndex: 0 }, given.length === 8 ? view(given).getBigInt64(0).toLocaleString("en") : "not 8 bytes") },
  text: { fits: () => true, show: (given, text) => h("pre", { tabIndex: 0 }, text !== null && !hidden.test(text.replaceAll(/[\n\t]/g, "")) ? text : shown(given)) },
  float64: { fits: () => false, show: (given) => h("pre", { tabIndex: 0 }, given.length === 8 ? String(view(given).getFloat64(0)) : "not 8 bytes") },
  hex: { fits: () => false, show: (given) => h("pre", { tabIndex: 0 }, dump(given)) },
};

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function dump(given) {
  const lines = [];
  for (let from = 0; from < given.length && lines.length < 256; from += 16) {
    const line = given.subarray(from, from + 16);
    const codes = [...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = [...line].map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${from.toString(16).padStart(5, "0")}  ${codes.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

// Shows a value with a choice of decoders; the choice is kept for its column.
export function valueBox(given, column) {
  const text = decoded(given);
  const key = `stele-decoder:${column}`;
  const fitting = Object.keys(decoders).find((name) => decoders[name].fits(given, text));
  const chosen = decoders[localStorage.getItem(key)] ? localStorage.getItem(key) : fitting;
  const box = h("div", {}, decoders[chosen].show(given, text));
  const select = h("select", { "aria-label": `show ${column} as` }, Object.keys(decoders).map((name) => h("option", { value: name, selected: name === chosen }, name)));
  select.addEventListener("change", () => {
    if (select.value === fitting) localStorage.removeItem(key);
    else localStorage.setItem(key, select.value);
    box.replaceChildren(decoders[select.value].show(given, text));
  });
  return { box, select };
}
