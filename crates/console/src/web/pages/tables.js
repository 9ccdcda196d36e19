// All tables of all instances.

import { get } from "/console/lib/api.js";
import { bytes, count, copyAs, h, head, many, table } from "/console/lib/parts.js";
import { empty } from "/console/lib/states.js";

export async function show(place) {
  const { tables } = await get("/tables");
  const largest = Math.max(1, ...tables.map((it) => it.disk_bytes));
  const list = h("div", {});
  const find = h("input", { type: "text", value: place.args.find ?? "", placeholder: "name", "aria-label": "find a table" });
  const system = h("input", { type: "checkbox", checked: place.args.system === "1" });
  const draw = () => {
    const text = find.value.trim();
    place.note(`/tables${text || system.checked ? `?${[text && `find=${encodeURIComponent(text)}`, system.checked && "system=1"].filter(Boolean).join("&")}` : ""}`);
    const shown = tables.filter((it) => (system.checked || !it.system) && it.name.includes(text));
    const own = tables.filter((it) => !it.system);
    if (!own.length && !system.checked) {
      list.replaceChildren(empty("No tables yet", "Create one, and set a cell:", ["stele table create users --family profile", "stele set users ada profile:city=London"]));
    } else if (!shown.length) {
      list.replaceChildren(empty("No table matches", `There are ${many(own.length, "table")}, but none with “${text}” in its name.`));
    } else {
      list.replaceChildren(h("section", { class: "panel" }, listed(shown, largest)));
    }
  };
  find.addEventListener("input", draw);
  system.addEventListener("change", draw);
  draw();
  const ways = { "stele command": () => "stele table list", curl: () => `curl '${location.origin}/console/v1/tables'` };
  const own = tables.filter((it) => !it.system).length;
  const box = h(
    "div",
    { class: "page" },
    head("Tables", many(own, "table"), copyAs(ways)),
    h("div", { class: "filters" }, h("label", {}, "find ", find), h("label", {}, system, "of the services too")),
    list,
  );
  return { box };
}

function listed(tables, largest) {
  const meter = (it) => {
    const bar = h("i", {});
    bar.style.width = `${((100 * it.disk_bytes) / largest).toFixed(1)}%`;
    return [bytes(it.disk_bytes), h("span", { class: "meter", "aria-hidden": "true" }, bar)];
  };
  const path = (it) => `/tables/${it.path.map(encodeURIComponent).join("/")}`;
  return table(
    [
      { name: "table", mono: true, show: (it) => (it.path && !it.system ? h("a", { href: `${path(it)}/rows` }, it.path[2]) : it.name) },
      { name: "project / instance", show: (it) => (it.path && !it.system ? `${it.path[0]} / ${it.path[1]}` : "") },
      { name: "tablets", number: true, show: (it) => count(it.tablets) },
      { name: "on disk", number: true, show: meter },
      { name: "more", show: (it) => (it.path && !it.system ? h("a", { href: path(it) }, "families and tablets") : h("span", { class: "soft" }, "of a service")) },
    ],
    tables,
  );
}
