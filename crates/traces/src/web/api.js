// Calls the server's API. Every failure becomes an Error with the server's message.

const base = "/traces/v1/tables";

async function parsed(response) {
  const body = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(body.error || `the server responded with status ${response.status}`);
  return body;
}

function address(table, page, args) {
  const given = Object.entries(args).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(given).toString();
  return `${base}/${encodeURIComponent(table)}${page}${text ? `?${text}` : ""}`;
}

const get = async (table, page, args = {}, signal) =>
  parsed(await fetch(address(table, page, args), { signal }));

export const tables = async () => (await parsed(await fetch(base))).tables;
export const table = (name) => get(name, "");
export const params = (name) => get(name, "/params");
export const grid = (name, args, signal) => get(name, "/query", args, signal);
export const trace = (name, id) => get(name, "/trace", { id });
export const commits = async (name, args) => (await get(name, "/commits", args)).commits;
export const bisect = (name, args) => get(name, "/bisect", args);
export const diff = (name, args) => get(name, "/diff", args);
export const blame = (name, args) => get(name, "/blame", args);
export const steps = (name, args) => get(name, "/steps", args);

export async function label(name, change) {
  return parsed(await fetch(address(name, "/labels", {}), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(change),
  }));
}
