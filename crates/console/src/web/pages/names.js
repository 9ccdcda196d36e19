// Names: the children of a name, the servers mounted on it, and who may do what.

import { get } from "/console/lib/api.js";
import { copyAs, crumbs, h, head, many, quoted, span, table } from "/console/lib/parts.js";
import { empty } from "/console/lib/states.js";

const path = (name) => `/names/${name.split("/").map(encodeURIComponent).join("/")}`;

export async function show({ parts }) {
  const name = (parts[0] ?? "").replace(/\/+$/, "");
  const data = await get("/names", { name });
  const links = name.split("/").filter(Boolean).map((part, index, all) => [part, path(all.slice(0, index + 1).join("/"))]);
  const ways = { "stele command": () => `stele name ls ${quoted(name || "")} -l`, curl: () => `curl '${location.origin}/console/v1/names?name=${encodeURIComponent(name)}'` };
  const box = h("div", { class: "page" }, links.length > 0 && crumbs(["names", "/names"], ...links), head(name || "Names", many(data.children.length, "child", "children"), copyAs(ways)), resolved(data), children(data, name), permissions(data));
  return { box };
}

// A mount without a deadline has one in the year 9999.
const ENDLESS = 3e9;
const servers = (entry) => entry.servers.map((it) => h("div", {}, h("span", { class: "mono" }, it.server), it.left_seconds !== null && it.left_seconds < ENDLESS && h("span", { class: "soft" }, `  for ${span(it.left_seconds)}`)));

function children(data, name) {
  if (!data.children.length) {
    return name ? h("section", { class: "panel" }, h("h2", {}, "Children"), h("p", { class: "soft" }, "None below this name.")) : empty("No names yet", "Mount a server:", ["stele name mount services/web 10.0.0.7:80 --ttl 60", "stele name resolve services/web"]);
  }
  const full = (entry) => (name ? `${name}/${entry.name}` : entry.name);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Children", data.more && h("span", { class: "soft" }, "the first 1,000")),
    table(
      [
        { name: "name", mono: true, show: (it) => (it.leaf ? it.name : h("a", { href: path(full(it)) }, it.name)) },
        { name: "servers", show: (it) => (it.servers.length ? servers(it) : h("span", { class: "soft" }, "none")) },
        { name: "kind", show: (it) => (it.mounttable ? "a mounttable" : it.leaf ? "leaf" : it.servers.length ? "server" : "node") },
      ],
      data.children,
    ),
    data.errors.map((error) => h("p", { class: "bad" }, `${error.name}: ${error.error}`)),
  );
}

function resolved({ resolved: answer, name }) {
  if (!answer || answer.error || !answer.names?.length) return null;
  return h("section", { class: "panel" }, h("h2", {}, "Resolves to"), answer.names.map((one) => h("div", { class: "mono" }, one)), h("p", { class: "soft" }, `A client that asks for ${name} is sent there.`));
}

function permissions({ permissions: given }) {
  if (given.error) return h("section", { class: "panel" }, h("h2", {}, "Permissions"), h("p", { class: "soft" }, given.error));
  if (!given.tags.length) return null;
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Permissions", h("span", { class: "soft" }, "who may do what here")),
    table(
      [
        { name: "may", show: (it) => it.tag },
        { name: "who", mono: true, show: (it) => it.in.join(", ") || "nobody" },
        { name: "but not", mono: true, show: (it) => it.not_in.join(", ") },
      ],
      given.tags,
    ),
  );
}
