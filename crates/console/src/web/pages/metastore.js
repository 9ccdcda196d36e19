// The metastore: keys by prefix, now or at an earlier revision, changing as they change;
// the history of a key, deletes included; leases and members.

import { address, get, post } from "/console/lib/api.js";
import { bytesOf, fieldOf, shown, typed, valueBox } from "/console/lib/bytes.js";
import * as live from "/console/lib/live.js";
import { bytes, copyAs, count, crumbs, h, head, many, quoted, span, table, toast, when } from "/console/lib/parts.js";
import { Rows, Split } from "/console/lib/rows.js";
import { empty, failed } from "/console/lib/states.js";

const tabs = (current) => {
  const tab = (name, href) => h("a", { href, "aria-current": name === current ? "page" : undefined }, name);
  return h("nav", { class: "tabs", "aria-label": "views of the metastore" }, tab("keys", "/metastore"), tab("leases", "/metastore/leases"), tab("members", "/metastore/members"));
};

export async function show(place) {
  if (place.parts[0] === "leases") return leases();
  if (place.parts[0] === "members") return members();
  return keys(place);
}

async function keys(place) {
  const { args } = place;
  const prefix = typed(args.prefix ?? "");
  const search = args.search ?? "";
  let revision = Number(args.revision) || 0;
  const query = () => ({ prefix, search, revision: revision || "" });
  const [status, first] = await Promise.all([get("/metastore"), get("/metastore/keys", query())]);
  const top = revision || search ? { entries: [] } : await get("/metastore/top", { prefix }).catch(() => ({ entries: [] }));

  const rows = new Rows("keys", { fill: (box, it) => fill(box, it, prefix), more, open });
  const split = new Split(rows);
  const about = h("span", { class: "soft", role: "status" });
  let after = null;
  take(first);

  function take(page) {
    after = page.more ? bytesOf(page, "after") : null;
    rows.add(page.keys, !page.more);
    const all = search ? `${many(rows.items.length, "key")} found` : many(page.total, "key");
    about.textContent = `${all} at revision ${count(page.revision)}`;
  }

  async function more() {
    if (!after || !place.isShown()) return;
    try {
      take(await get("/metastore/keys", { ...query(), after }));
    } catch (error) {
      rows.ended = true;
      toast(error.message);
    }
  }

  const link = (change) => {
    const all = { prefix: args.prefix ?? "", search, revision: revision || "", ...change };
    const given = Object.entries(all).filter(([, value]) => value !== "").map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    return `/metastore${given.length ? `?${given.join("&")}` : ""}`;
  };

  async function open(item) {
    const key = bytesOf(item, "key");
    const data = await get("/metastore/key", { key }).catch((error) => (split.show(shown(key), failed(error)), null));
    if (data) split.show(shown(key), details(data, key));
  }

  function details(data, key) {
    const [newest] = data.changes;
    const parts = [];
    if (newest && !newest.deleted && revision === 0) parts.push(editor(newest, key, data.revision));
    if (data.lock) parts.push(lock(data.lock));
    parts.push(h("h3", {}, `changes, ${data.more ? "the newest " : ""}${data.changes.length}`));
    data.changes.forEach((change, index) => parts.push(changeBox(change, data.changes[index + 1], key, data.revision, index)));
    parts.push(h("p", { class: "soft" }, `History reaches back to revision ${count(Math.max(1, data.oldest_revision))}.`));
    const ways = {
      "stele command": () => `stele metastore history ${quoted(shown(key))}`,
      etcdctl: () => `etcdctl get ${quoted(shown(key))}`,
      curl: () => `curl '${location.origin}/console/v1${address("/metastore/key", { key })}'`,
    };
    parts.push(h("div", { class: "actions" }, copyAs(ways)));
    return parts;
  }

  async function put(key, seen, change, what, review) {
    try {
      await post("/metastore/key", { ...fieldOf("key", key), seen, ...change });
      toast(what);
      open({ ...fieldOf("key", key) });
    } catch (error) {
      review.replaceChildren(h("p", { class: "review conflict", role: "alert" }, error.message, " ", h("button", { onclick: () => open({ ...fieldOf("key", key) }) }, "look again")));
    }
  }

  function editor(newest, key, seen) {
    const given = bytesOf(newest, "value");
    const { box, select } = valueBox(given, `metastore${shown(key)}`);
    const area = h("div", {});
    const edit = () => {
      if (newest.value_bytes) return toast("this value is too long to be edited here");
      const text = h("textarea", { "aria-label": "new value", spellcheck: false });
      text.value = shown(given);
      const review = h("div", {});
      const save = () => {
        let value;
        try {
          value = typed(text.value);
        } catch (error) {
          return review.replaceChildren(h("p", { class: "review conflict", role: "alert" }, error.message));
        }
        put(key, seen, fieldOf("value", value), "key saved", review);
      };
      const remove = h("button", { class: "danger", onclick: () => put(key, seen, {}, "key deleted", review) }, "delete the key");
      area.replaceChildren(text, h("p", { class: "soft" }, `Saved only if the key has not changed after revision ${count(seen)}.`), review, h("div", { class: "actions" }, h("button", { class: "primary", onclick: save }, "save"), h("button", { onclick: () => area.replaceChildren() }, "cancel"), remove));
      text.focus();
    };
    const lease = newest.lease && h("span", { class: "soft" }, `lease ${newest.lease}`);
    return h("div", { class: "cell" }, h("div", { class: "line" }, h("span", { class: "soft" }, `version ${count(newest.version)}`), lease, h("span", { class: "grow" }), select, h("button", { "data-edit": "", onclick: edit }, "edit")), box, area);
  }

  function changeBox(change, before, key, seen, index) {
    const review = h("div", {});
    const text = change.deleted ? h("p", { class: "removed" }, "deleted") : index === 0 ? null : difference(change, before);
    const back = !change.deleted && index > 0 && !change.value_bytes && h("button", { onclick: () => put(key, seen, fieldOf("value", bytesOf(change, "value")), `the value of revision ${change.revision} is back`, review) }, "put back");
    const by = change.user ? ` by ${change.user}` : "";
    const look = h("a", { href: link({ revision: change.revision }) }, `revision ${count(change.revision)}`);
    return h("div", { class: "cell" }, h("div", { class: "line" }, look, h("span", { class: "soft" }, change.time_micros ? `${when(change.time_micros)}${by}` : by), h("span", { class: "grow" }), back), text, review);
  }

  const crumb = shown(prefix).split("/").slice(0, -1);
  const path = crumb.map((name, index) => [name, link({ prefix: `${crumb.slice(0, index + 1).join("/")}/`, search: "" })]).filter(([name]) => name);
  const folders = top.entries.map((entry) => [entry, shown(bytesOf(entry, "prefix"))]).filter(([, name]) => name.endsWith("/") && name !== shown(prefix));
  const chips = folders.length > 0 && h("div", { class: "folders", role: "group", "aria-label": "prefixes", tabIndex: 0 }, folders.map(([entry, name]) => h("a", { class: "chip", href: link({ prefix: name }) }, name.slice(shown(prefix).length), h("small", {}, count(entry.keys)))));

  const nothing = search || prefix.length || revision ? empty("No key here", revision ? `There was none at revision ${count(revision)}.` : "No key has this prefix and passes the search.") : empty("No keys yet", "Put one:", ["stele metastore put /config/colour green", "etcdctl put /config/colour green"]);
  const box = h(
    "div",
    { class: "page full" },
    path.length > 0 && crumbs(["keys", link({ prefix: "", search: "" })], ...path),
    head("Metastore", null, about, copyAs({ "stele command": () => `stele metastore list ${quoted(shown(prefix))}`, etcdctl: () => `etcdctl get --prefix ${quoted(shown(prefix))}`, curl: () => `curl '${location.origin}/console/v1${address("/metastore/keys", query())}'` })),
    tabs("keys"),
    controls(place, status, link, revision),
    chips,
    first.keys.length ? split.box : nothing,
  );
  const ready = () => {
    rows.draw();
    if (revision) return;
    live.listen(() => address("", { topics: "watch", prefix }).slice(1), {
      watch: (event) => changed(event),
      "watch-ended": ({ error }) => toast(error),
    });
  };

  // Takes a change into the list, where its key belongs.
  function changed(event) {
    if (event.lock) return;
    const name = shown(bytesOf(event, "key"));
    const at = rows.items.findIndex((item) => shown(bytesOf(item, "key")) === name);
    about.textContent = `live, at revision ${count(event.revision)}`;
    if (search && !name.includes(search)) return;
    if (event.deleted) {
      if (at >= 0) rows.items.splice(at, 1);
    } else if (at >= 0) rows.items[at] = { ...event.put, fresh: true };
    else {
      if (!rows.items.length) return place.again();
      const next = rows.items.findIndex((item) => shown(bytesOf(item, "key")) > name);
      if (next < 0 && !rows.ended) return;
      rows.items.splice(next < 0 ? rows.items.length : next, 0, { ...event.put, fresh: true });
    }
    rows.refresh();
  }

  return { box, ready, keys: { Escape: () => split.close(), e: () => split.detail.querySelector("[data-edit]")?.click(), ArrowDown: () => (rows.box.focus(), rows.select(rows.current + 1)) } };
}

function fill(box, item, prefix) {
  const value = shown(bytesOf(item, "value").subarray(0, 200));
  box.classList.toggle("fresh", Boolean(item.fresh));
  box.append(h("span", { class: "name" }, shown(bytesOf(item, "key")).slice(shown(prefix).length) || shown(bytesOf(item, "key"))), h("span", { class: "rest" }, value), h("span", { class: "end" }, `${item.lease ? "leased · " : ""}${count(item.revision)}`));
}

function controls(place, status, link, revision) {
  const prefix = h("input", { type: "text", value: place.args.prefix ?? "", placeholder: "/config/", spellcheck: false });
  const search = h("input", { type: "text", value: place.args.search ?? "", placeholder: "part of a key", spellcheck: false });
  const oldest = Math.max(1, status.oldest_revision);
  const slider = h("input", { type: "range", min: oldest, max: Math.max(oldest, status.revision), value: revision || status.revision, "aria-label": "revision" });
  const label = h("span", {}, revision ? `revision ${count(revision)}` : "now");
  slider.addEventListener("input", () => (label.textContent = Number(slider.value) === status.revision ? "now" : `revision ${count(Number(slider.value))}`));
  slider.addEventListener("change", () => place.go(link({ revision: Number(slider.value) === status.revision ? "" : slider.value })));
  const form = h("form", { class: "filters", role: "search", "aria-label": "filters" }, h("label", {}, "prefix", prefix), h("label", {}, "find", search), h("button", { class: "primary" }, "read"), h("div", { class: "slider" }, slider, label, revision > 0 && h("a", { href: link({ revision: "" }) }, "back to now")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    place.go(link({ prefix: prefix.value, search: search.value }));
  });
  return form;
}

// Shows what a change did to the value before it, line by line.
function difference(change, before) {
  const now = shown(bytesOf(change, "value")).split("\\n");
  const old = before && !before.deleted ? shown(bytesOf(before, "value")).split("\\n") : [];
  const box = h("div", { class: "text" });
  for (const line of old.filter((line) => !now.includes(line)).slice(0, 20)) box.append(h("div", { class: "removed" }, line));
  for (const line of now.slice(0, 40)) box.append(h("div", { class: old.includes(line) ? "" : "added" }, line));
  return box;
}

function lock({ holders, waiters }) {
  if (!holders.length && !waiters.length) return null;
  return [
    h("h3", {}, "lock"),
    table(
      [
        { name: "lease", mono: true, show: (it) => it.lease },
        { name: "role", show: (it) => `${it.token === undefined ? "waits" : "holds"}${it.shared ? ", shared" : ""}` },
        { name: "token", number: true, show: (it) => (it.token === undefined ? "" : count(it.token)) },
      ],
      [...holders, ...waiters],
    ),
  ];
}

async function leases() {
  const data = await get("/metastore/leases");
  const keyLinks = (it) => it.keys.slice(0, 6).map((key) => h("div", {}, h("a", { href: `/metastore?prefix=${encodeURIComponent(shown(bytesOf(key, "key")))}` }, shown(bytesOf(key, "key")))));
  const list = data.leases.length
    ? h(
        "section",
        { class: "panel" },
        table(
          [
            { name: "lease", mono: true, show: (it) => it.id },
            { name: "left", number: true, show: (it) => span(Math.max(0, it.left_seconds)) },
            { name: "granted", number: true, show: (it) => span(it.granted_seconds) },
            { name: "keys", mono: true, show: (it) => [keyLinks(it), it.keys.length > 6 && h("div", { class: "soft" }, `and ${it.keys.length - 6} more`)] },
          ],
          data.leases,
        ),
      )
    : empty("No leases", "A lease deletes its keys when its owner no longer keeps it alive.", ["stele metastore lease --help"]);
  return { box: h("div", { class: "page" }, head("Metastore", many(data.total, "lease")), tabs("leases"), list) };
}

async function members() {
  const data = await get("/metastore");
  const quota = data.quota_bytes > 0 && data.quota_bytes < 2 ** 62 ? ` of ${bytes(data.quota_bytes)}` : "";
  const facts = [
    ["cluster", data.cluster],
    ["revision", count(data.revision)],
    ["history since", data.oldest_micros ? `${when(data.oldest_micros)}, revision ${count(data.oldest_revision)}` : "the beginning"],
    ["keys and values", `${bytes(data.live_bytes)}${quota}`],
    ["with history", bytes(data.stored_bytes)],
    ["feature level", data.level],
    ["alarms", data.alarms.join(", ") || "none"],
  ];
  const box = h(
    "div",
    { class: "page" },
    head("Metastore", many(data.members.length, "member")),
    tabs("members"),
    h("section", { class: "panel" }, h("h2", {}, "Group"), h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))),
    h(
      "section",
      { class: "panel" },
      h("h2", {}, "Members"),
      table(
        [
          { name: "member", mono: true, show: (it) => it.id },
          { name: "role", show: (it) => `${it.error ? "" : it.is_leader ? "leader" : "follower"}${it.is_this ? ", this server" : ""}` },
          { name: "address", mono: true, show: (it) => it.peer_url || "alone" },
          { name: "applied", number: true, show: (it) => count(it.applied_index) },
          { name: "behind", number: true, show: (it) => count(Math.max(0, it.last_index - it.applied_index)) },
          { name: "state", show: (it) => (it.error ? h("span", { class: "bad" }, it.error) : "answers") },
        ],
        data.members,
      ),
    ),
  );
  return { box };
}
