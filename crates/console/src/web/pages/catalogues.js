// Catalogues: their list, and the records of one.

import { address, get } from "/console/lib/api.js";
import { bytesOf, shown, typed, valueBox } from "/console/lib/bytes.js";
import { bytes, copyAs, count, crumbs, h, head, many, quoted, table, toast, when } from "/console/lib/parts.js";
import { Rows, Split } from "/console/lib/rows.js";
import { empty } from "/console/lib/states.js";

export async function show(place) {
  return place.parts[0] ? records(place) : list();
}

async function list() {
  const data = await get("/catalogues", { limit: 1000 });
  const shownList = data.catalogues.length
    ? h(
        "section",
        { class: "panel" },
        table(
          [
            { name: "catalogue", mono: true, show: (it) => h("a", { href: `/catalogues/${encodeURIComponent(it.fid)}` }, it.fid) },
            { name: "records", number: true, show: (it) => count(it.records) },
            { name: "keys and values", number: true, show: (it) => bytes(it.bytes) },
            { name: "created", show: (it) => (it.created_micros ? when(it.created_micros).slice(0, 19) : h("span", { class: "soft" }, "of the service")) },
          ],
          data.catalogues,
        ),
      )
    : empty("No catalogues yet", "Create one and put a record:", ["stele catalogue create 1:1", "stele catalogue put 1:1 key=value"]);
  const box = h("div", { class: "page" }, head("Catalogues", data.more ? `the first ${count(data.catalogues.length)}` : many(data.catalogues.length, "catalogue"), copyAs({ "stele command": () => "stele catalogue list", curl: () => `curl '${location.origin}/console/v1/catalogues'` })), shownList);
  return { box };
}

async function records(place) {
  const fid = place.parts[0];
  const path = `/catalogues/${encodeURIComponent(fid)}`;
  const start = typed(place.args.start ?? "");
  const first = await get("/catalogue", { fid, start });
  const rows = new Rows(`records of ${fid}`, { fill, more, open });
  const split = new Split(rows);
  const about = h("span", { class: "soft", role: "status" });
  let after = null;
  take(first);

  function take(page) {
    after = page.more ? bytesOf(page, "after") : null;
    rows.add(page.records, !page.more);
    about.textContent = `${many(rows.items.length, "record")}${page.more ? " so far" : ""}`;
  }
  async function more() {
    if (!after || !place.isShown()) return;
    await get("/catalogue", { fid, after }).then(take, (error) => ((rows.ended = true), toast(error.message)));
  }
  function fill(box, item) {
    box.append(h("span", { class: "name" }, shown(bytesOf(item, "key"))), h("span", { class: "rest" }, shown(bytesOf(item, "value").subarray(0, 200))), h("span", { class: "end" }, bytes(item.value_bytes ?? bytesOf(item, "value").length)));
  }
  function open(item) {
    const key = shown(bytesOf(item, "key"));
    const { box, select } = valueBox(bytesOf(item, "value"), `catalogue ${fid}`);
    const cut = item.value_bytes && h("p", { class: "soft" }, `The beginning of ${bytes(item.value_bytes)}.`);
    split.show(key, h("div", { class: "cell" }, h("div", { class: "line" }, h("span", { class: "grow" }), select), box, cut), h("div", { class: "actions" }, copyAs({ "stele command": () => `stele catalogue get ${fid} ${quoted(key)}` })));
  }

  const from = h("input", { type: "text", value: place.args.start ?? "", placeholder: "key", spellcheck: false });
  const form = h("form", { class: "filters", role: "search", "aria-label": "filters" }, h("label", {}, "from", from), h("button", { class: "primary" }, "read"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    place.go(`${path}${from.value ? `?start=${encodeURIComponent(from.value)}` : ""}`);
  });
  const ways = { "stele command": () => `stele catalogue next ${fid}`, curl: () => `curl '${location.origin}/console/v1${address("/catalogue", { fid })}'` };
  const nothing = empty("No records", place.args.start ? "None from this key on." : "Put one:", place.args.start ? [] : [`stele catalogue put ${fid} key=value`]);
  const box = h("div", { class: "page full" }, crumbs(["catalogues", "/catalogues"]), head(fid, null, about, copyAs(ways)), form, first.records.length ? split.box : nothing);
  return { box, ready: () => rows.draw(), keys: { Escape: () => split.close(), ArrowDown: () => (rows.box.focus(), rows.select(rows.current + 1)) } };
}
