// Speaks to the server. Every failure becomes an Error with the server's words.

const base = "/traces/v1/tables";

async function answered(response) {
  const body = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(body.error || `the server said ${response.status}`);
  return body;
}

function address(table, page, args) {
  const given = Object.entries(args).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(given).toString();
  return `${base}/${encodeURIComponent(table)}${page}${text ? `?${text}` : ""}`;
}

const ask = async (table, page, args = {}, signal) =>
  answered(await fetch(address(table, page, args), { signal }));

export const tables = async () => (await answered(await fetch(base))).tables;
export const table = (name) => ask(name, "");
export const params = (name) => ask(name, "/params");
export const grid = (name, args, signal) => ask(name, "/query", args, signal);
export const trace = (name, id) => ask(name, "/trace", { id });
export const commits = async (name, args) => (await ask(name, "/commits", args)).commits;
export const bisect = (name, args) => ask(name, "/bisect", args);
export const diff = (name, args) => ask(name, "/diff", args);
export const blame = (name, args) => ask(name, "/blame", args);
export const steps = (name, args) => ask(name, "/steps", args);

export async function label(name, change) {
  return answered(await fetch(address(name, "/labels", {}), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(change),
  }));
}
