// One table: its families with their rules, and its tablets.

import { get } from "/console/lib/api.js";
import { bytesOf, shown } from "/console/lib/bytes.js";
import { bytes, copyAs, count, crumbs, h, head, many, quoted, table } from "/console/lib/parts.js";

export const tabs = (path, current) => {
  const tab = (name, href) => h("a", { href, "aria-current": name === current ? "page" : undefined }, name);
  return h("nav", { class: "tabs", "aria-label": "views of the table" }, tab("rows", `${path}/rows`), tab("families and tablets", path));
};

export async function show({ parts }) {
  const [project, instance, id] = parts;
  const path = `/tables/${parts.map(encodeURIComponent).join("/")}`;
  const data = await get("/table", { table: parts.join("/") });
  const flags = `--project ${quoted(project)} --instance ${quoted(instance)}`;
  const ways = {
    "stele command": () => `stele table describe ${quoted(id)} ${flags}`,
    Python: () => `bigtable.Client(project=${JSON.stringify(project)}, admin=True).instance(${JSON.stringify(instance)}).table(${JSON.stringify(id)}).list_column_families()`,
    curl: () => `curl '${location.origin}/console/v1/table?table=${parts.map(encodeURIComponent).join("/")}'`,
  };
  const box = h(
    "div",
    { class: "page" },
    crumbs(["tables", "/tables"], [`${project} / ${instance}`, `/tables?find=${encodeURIComponent(`projects/${project}/instances/${instance}/`)}`]),
    head(id, `${many(data.tablets_total, "tablet")}, ${bytes(data.disk_bytes)} on disk${data.protected ? ", protected from deletion" : ""}`, copyAs(ways)),
    tabs(path, "families and tablets"),
    families(data, id, flags),
    tablets(data, path),
  );
  return { box };
}

function families(data, id, flags) {
  if (!data.families.length) {
    return h("section", { class: "panel" }, h("h2", {}, "Families"), h("p", { class: "soft" }, "None yet. ", h("code", {}, `stele table family add ${quoted(id)} profile ${flags}`), " adds one."));
  }
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Families", h("span", { class: "soft" }, "what a rule covers is garbage: it is neither read nor kept")),
    table(
      [
        { name: "family", mono: true, show: (it) => it.name },
        { name: "values", show: (it) => it.kind },
        { name: "garbage", mono: true, show: (it) => it.rule },
      ],
      data.families,
    ),
  );
}

function tablets(data, path) {
  const largest = Math.max(1, ...data.tablets.map((it) => it.disk_bytes));
  const strip = h("div", { class: "strip", role: "img", "aria-label": `sizes of ${many(data.tablets.length, "tablet")} in the order of their rows` });
  for (const tablet of data.tablets.slice(0, 300)) {
    const bar = h("i", { title: `${shown(bytesOf(tablet, "start")) || "first row"}: ${bytes(tablet.disk_bytes)}` });
    bar.style.flex = `${Math.max(0.01, tablet.disk_bytes / largest)} 1 0`;
    strip.append(bar);
  }
  const row = (it, name, none) => {
    const given = bytesOf(it, name);
    return given.length ? h("a", { href: `${path}/rows?start=${[...given].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("")}` }, shown(given)) : h("span", { class: "soft" }, none);
  };
  const runs = (it) => Math.max(0, ...it.groups.map((group) => group.runs));
  const damaged = (it) => it.groups.reduce((sum, group) => sum + group.damaged, 0);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Tablets", h("span", { class: "soft" }, data.tablets.length < data.tablets_total ? `the first ${count(data.tablets.length)} of ${count(data.tablets_total)}` : "each a range of rows")),
    strip,
    table(
      [
        { name: "first row", mono: true, show: (it) => row(it, "start", "beginning") },
        { name: "end row", mono: true, show: (it) => row(it, "end", "end") },
        { name: "on disk", number: true, show: (it) => bytes(it.disk_bytes) },
        { name: "runs", number: true, show: (it) => count(runs(it)) },
        { name: "files", number: true, show: (it) => count(it.groups.reduce((sum, group) => sum + group.files, 0)) },
        { name: "state", show: (it) => (damaged(it) ? h("span", { class: "bad" }, `${it.state}, ${many(damaged(it), "damaged file")}`) : it.state) },
        { name: "tablet", mono: true, show: (it) => it.id },
      ],
      data.tablets,
    ),
  );
}
