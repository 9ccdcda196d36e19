// The rows of a table: a filtered list by cursor, and the cells of one row, which can be
// changed if nobody else has changed them meanwhile.

import { address, get, post } from "/console/lib/api.js";
import { bytesOf, fieldOf, shown, typed, valueBox } from "/console/lib/bytes.js";
import { ago, bytes, copyAs, crumbs, h, head, many, quoted, toast, when } from "/console/lib/parts.js";
import { Rows, Split } from "/console/lib/rows.js";
import { empty, failed } from "/console/lib/states.js";
import { tabs } from "/console/pages/table.js";

const FILTERS = [
  ["prefix", "prefix", "de:"],
  ["start", "from", ""],
  ["end", "to", ""],
  ["regex", "key matches", "de:.*"],
  ["columns", "columns", "info:name"],
  ["value", "value matches", ""],
  ["since", "since", "7d"],
];
const BYTES = ["key", "prefix", "start", "end", "regex", "columns", "value"];

export async function show(place) {
  const { parts, args } = place;
  const [project, instance, id] = parts;
  const path = `/tables/${parts.map(encodeURIComponent).join("/")}`;
  const query = () => Object.fromEntries(Object.entries(args).filter(([, value]) => value !== "").map(([name, value]) => [name, BYTES.includes(name) ? typed(value) : value]));
  // Finds out before anything is shown whether the table and the filters are valid.
  const first = await get("/rows", { table: parts.join("/"), ...query() });

  const rows = new Rows(`rows of ${id}`, { fill, more, open: (row) => open(row) });
  const split = new Split(rows);
  const about = h("span", { class: "soft", role: "status" });
  let after = null;
  let total = 0;
  take(first);

  function take(page) {
    after = page.more ? bytesOf(page, "after") : null;
    total += page.rows.length;
    rows.add(page.rows, !page.more);
    about.textContent = `${many(total, "row")}${page.more ? " so far" : ""}`;
  }

  async function more() {
    if (!after || !place.isShown()) return;
    try {
      take(await get("/rows", { table: parts.join("/"), ...query(), after }));
    } catch (error) {
      rows.ended = true;
      rows.box.append(failed(error, () => ((rows.ended = false), rows.box.querySelector(".state")?.remove(), rows.draw())));
    }
  }

  async function open(row) {
    const key = bytesOf(row, "key");
    const page = await get("/rows", { table: parts.join("/"), key, versions: 100 }).catch((error) => (split.show(shown(key), failed(error)), null));
    if (!page) return;
    const fresh = page.rows[0];
    if (!fresh) return split.show(shown(key), h("p", { class: "soft" }, "This row was deleted since it was listed."));
    split.show(shown(key), details(fresh, key));
  }

  function details(row, key) {
    const families = Map.groupBy(row.cells, (cell) => cell.family);
    const sections = [...families].map(([family, cells]) => {
      const columns = Map.groupBy(cells, (cell) => shown(bytesOf(cell, "qualifier")));
      return [h("h3", {}, family), [...columns].map(([name, versions]) => column(row, key, family, name, versions))];
    });
    const add = h("button", { onclick: () => addColumn(row, key, add) }, "add a column");
    const remove = h("button", { class: "danger", onclick: () => removeRow(row, key, remove) }, "delete the row");
    const ways = {
      "stele command": () => `stele lookup ${quoted(id)} ${quoted(shown(key))} --project ${quoted(project)} --instance ${quoted(instance)}`,
      Python: () => `${python()}.read_row(${pythonBytes(key)})`,
      curl: () => `curl '${location.origin}/console/v1${address("/rows", { table: parts.join("/"), key })}'`,
    };
    return [sections, h("div", { class: "actions" }, add, remove, copyAs(ways))];
  }

  function column(row, key, family, name, versions) {
    const [newest, ...older] = versions;
    const full = `${family}:${name}`;
    const { box, select } = valueBox(bytesOf(newest, "value"), `${id}/${full}`);
    const edit = h("button", { "data-edit": "", onclick: () => editor(row, key, newest, area, edit) }, "edit");
    const area = h("div", {});
    const whole = newest.value_bytes && h("button", { onclick: () => loadWhole(key, newest, box, `${id}/${full}`, whole) }, `show all ${bytes(newest.value_bytes)}`);
    const history = older.length > 0 && h("details", {}, h("summary", { class: "soft" }, `${older.length} older`), older.map((cell) => h("div", { class: "cell old" }, h("span", { class: "soft", title: `${cell.timestamp_micros}` }, when(cell.timestamp_micros)), valueBox(bytesOf(cell, "value"), `${id}/${full}`).box)));
    return h("div", { class: "cell" }, h("div", { class: "line" }, h("span", { class: "mono" }, name || "(empty)"), h("span", { class: "soft", title: `${when(newest.timestamp_micros)} (${newest.timestamp_micros} µs)` }, ago(newest.timestamp_micros)), h("span", { class: "grow" }), select, edit), box, whole, area, history);
  }

  async function loadWhole(key, cell, box, name, button) {
    const { family, timestamp_micros: timestamp } = cell;
    const full = await get("/value", { table: parts.join("/"), key, family, qualifier: bytesOf(cell, "qualifier"), timestamp });
    const given = bytesOf(full, "value");
    box.replaceChildren(valueBox(given, name).box);
    button.remove();
  }

  // Shows what would be sent, sends it only after that was seen, and shows a conflict.
  function editor(row, key, cell, area, button) {
    if (cell.value_bytes) return toast("this value is too long to be edited here");
    const qualifier = bytesOf(cell, "qualifier");
    const text = h("textarea", { "aria-label": "new value", spellcheck: false });
    text.value = shown(bytesOf(cell, "value"));
    const review = h("div", {});
    const send = async (change, what) => {
      try {
        await post("/row", { table: parts.join("/"), ...fieldOf("key", key), family: cell.family, ...fieldOf("qualifier", qualifier), seen: cell.timestamp_micros === undefined ? null : { timestamp_micros: cell.timestamp_micros, ...fieldOf("value", bytesOf(cell, "value")) }, ...change });
        toast(what);
        open(row);
      } catch (error) {
        if (error.kind !== "conflict") return review.replaceChildren(h("p", { class: "review conflict", role: "alert" }, error.message));
        await conflict(key, cell, text.value, review, () => open(row));
      }
    };
    const save = () => {
      let value;
      try {
        value = typed(text.value);
      } catch (error) {
        return review.replaceChildren(h("p", { class: "review conflict", role: "alert" }, error.message));
      }
      const name = `${cell.family}:${shown(qualifier)}`;
      const command = `set ${id} ${shown(key)} ${name}=…`;
      const condition = cell.timestamp_micros === undefined ? "if the column is still missing" : `if the newest version is still that of ${when(cell.timestamp_micros)}`;
      const yes = h("button", { class: "primary", onclick: () => send(fieldOf("value", value), `${name} saved`) }, "save");
      review.replaceChildren(h("div", { class: "review" }, h("code", {}, command), ` with ${bytes(value.length)}, ${condition}.`, h("div", { class: "actions" }, yes)));
      yes.focus();
    };
    const drop = h("button", { class: "danger", onclick: () => send({}, "column deleted") }, "delete the column");
    const cancel = h("button", { onclick: () => (area.replaceChildren(), button.focus()) }, "cancel");
    area.replaceChildren(text, h("p", { class: "soft" }, "Bytes as \\xNN; a backslash as \\\\."), review, h("div", { class: "actions" }, h("button", { class: "primary", onclick: save }, "review"), cancel, cell.timestamp_micros !== undefined && drop));
    text.focus();
  }

  async function conflict(key, cell, mine, review, reload) {
    const page = await get("/rows", { table: parts.join("/"), key, versions: 1 }).catch(() => ({ rows: [] }));
    const name = shown(bytesOf(cell, "qualifier"));
    const theirs = page.rows[0]?.cells.find((other) => other.family === cell.family && shown(bytesOf(other, "qualifier")) === name);
    review.replaceChildren(
      h("div", { class: "review conflict", role: "alert" }, h("b", {}, "Somebody else changed this cell. Nothing was saved."), h("h3", {}, "now"), h("pre", { class: "text", tabIndex: 0 }, theirs ? shown(bytesOf(theirs, "value")) : "(deleted)"), h("h3", {}, "yours"), h("pre", { class: "text", tabIndex: 0 }, mine), h("div", { class: "actions" }, h("button", { onclick: reload }, "start again from the newest"))),
    );
  }

  function addColumn(row, key, button) {
    const name = h("input", { type: "text", placeholder: "family:qualifier", "aria-label": "new column" });
    const area = h("div", { class: "cell" }, h("div", { class: "line" }, name, h("button", { class: "primary", onclick: next }, "continue")));
    function next() {
      const [, family, qualifier] = /^([^:]+):(.*)$/s.exec(name.value) ?? [];
      if (!family) return toast("a column is family:qualifier");
      editor(row, key, { family, ...fieldOf("qualifier", typed(qualifier)), value: "" }, area, button);
    }
    button.parentElement.before(area);
    name.focus();
  }

  function removeRow(row, key, button) {
    const name = h("input", { type: "text", "aria-label": "key of the row to delete" });
    const yes = h("button", { class: "danger", disabled: true, onclick: remove }, "delete");
    name.addEventListener("input", () => (yes.disabled = name.value !== shown(key)));
    async function remove() {
      try {
        await post("/row", { table: parts.join("/"), ...fieldOf("key", key), delete_row: true });
        toast("row deleted");
        split.close();
        place.again();
      } catch (error) {
        toast(error.message);
      }
    }
    button.replaceWith(h("div", { class: "review conflict" }, "All cells of this row are deleted. Type its key to go on.", h("div", { class: "actions" }, name, yes)));
    name.focus();
  }

  const python = () => `bigtable.Client(project=${JSON.stringify(project)}).instance(${JSON.stringify(instance)}).table(${JSON.stringify(id)})`;
  const flags = () => Object.entries(args).filter(([name, value]) => value && name !== "value").map(([name, value]) => `--${name} ${quoted(value)}`).join(" ");
  const ways = {
    "stele command": () => `stele read ${quoted(id)} ${flags()} --project ${quoted(project)} --instance ${quoted(instance)}`,
    Python: () => `${python()}.read_rows(${args.prefix ? `row_set=RowSet().add_row_range_with_prefix(${JSON.stringify(args.prefix)})` : ""})`,
    curl: () => `curl '${location.origin}/console/v1${address("/rows", { table: parts.join("/"), ...query() })}'`,
  };

  const form = filters(place, path);
  const isFiltered = Object.values(args).some(Boolean);
  const nothing = isFiltered
    ? empty("No row matches", "The table may have rows, but none passes the filters.")
    : empty("No rows yet", "Set a cell:", [`stele set ${quoted(id)} ada family:qualifier=value --project ${quoted(project)} --instance ${quoted(instance)}`]);
  const title = head(id, null, about, copyAs(ways));
  const box = h("div", { class: "page full" }, crumbs(["tables", "/tables"], [`${project} / ${instance}`, `/tables?find=${encodeURIComponent(`projects/${project}/instances/${instance}/`)}`]), title, tabs(path, "rows"), form, first.rows.length ? split.box : nothing);
  return {
    box,
    ready: () => {
      rows.draw();
      if (args.key && first.rows.length === 1) rows.select(0, true);
    },
    keys: {
      Escape: () => split.close(),
      e: () => split.detail.querySelector("[data-edit]")?.click(),
      ArrowDown: () => (rows.box.focus(), rows.select(rows.current + 1)),
      ArrowUp: () => (rows.box.focus(), rows.select(rows.current - 1)),
    },
  };
}

function pythonBytes(given) {
  return `b"${[...given].map((byte) => (byte > 31 && byte < 127 && byte !== 34 && byte !== 92 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`)).join("")}"`;
}

// One line for a row: its key, and what fits of its newest cells.
function fill(box, row) {
  const seen = new Set();
  const cells = [];
  for (const cell of row.cells) {
    const name = `${cell.family}:${shown(bytesOf(cell, "qualifier"))}`;
    if (seen.has(name) || cells.length > 8) continue;
    seen.add(name);
    const value = shown(bytesOf(cell, "value").subarray(0, 120));
    cells.push(h("span", {}, h("b", {}, `${name} `), value));
  }
  box.append(h("span", { class: "name" }, shown(bytesOf(row, "key"))), h("span", { class: "rest" }, cells));
}

function filters({ args, go }, path) {
  const inputs = FILTERS.map(([name, label, placeholder]) => [name, h("input", { type: "text", value: args[name] ?? "", placeholder, spellcheck: false }), label]);
  const versions = h("input", { type: "number", min: 1, max: 1000, value: args.versions ?? "", placeholder: "10" });
  const order = h("select", {}, h("option", { value: "" }, "ascending"), h("option", { value: "descending", selected: args.order === "descending" }, "descending"));
  const form = h(
    "form",
    { class: "filters", role: "search", "aria-label": "filters" },
    inputs.filter(([name]) => name !== "key").map(([, input, label]) => h("label", {}, label, input)),
    h("label", {}, "versions", versions),
    h("label", {}, "order", order),
    h("button", { class: "primary" }, "read"),
    Object.values(args).some(Boolean) && h("a", { class: "button", href: `${path}/rows` }, "clear"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const all = [...inputs.map(([name, input]) => [name, input.value]), ["versions", versions.value], ["order", order.value]];
    const given = all.filter(([, value]) => value !== "").map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    go(`${path}/rows${given.length ? `?${given.join("&")}` : ""}`);
  });
  order.addEventListener("change", () => form.requestSubmit());
  return form;
}
