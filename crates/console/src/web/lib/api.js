// Calls the server's API. An error has a `kind`: "away" if the server does not answer,
// else the server's word for it.

export class ApiError extends Error {
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }
}

// Values are text or bytes; bytes become %XX.
export function encode(value) {
  const given = value instanceof Uint8Array ? value : new TextEncoder().encode(String(value));
  let text = "";
  for (const byte of given) {
    const letter = String.fromCharCode(byte);
    text += /[\w.~:,/-]/.test(letter) ? letter : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

export function address(path, args = {}) {
  const given = Object.entries(args).filter(([, value]) => value !== undefined && value !== null && value !== "" && value.length !== 0);
  const query = given.map(([name, value]) => `${name}=${encode(value)}`).join("&");
  return `${path}${query ? `?${query}` : ""}`;
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(`/console/v1${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    dispatchEvent(new CustomEvent("stele:away"));
    throw new ApiError("The server does not answer.", "away");
  }
  dispatchEvent(new CustomEvent("stele:here"));
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) throw new ApiError(body?.error ?? `the server answered with status ${response.status}`, body?.kind ?? "internal");
  return body;
}

export const get = (path, args, signal) => call(address(path, args), { signal });

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
