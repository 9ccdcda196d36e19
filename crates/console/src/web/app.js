// The shell: sections, links, the box at the top, keys, theme, and the state of the
// connection to the server.

import { get } from "/console/lib/api.js";
import * as live from "/console/lib/live.js";
import { at, copy, many } from "/console/lib/parts.js";
import { failed, waiting } from "/console/lib/states.js";

const main = at("main");
const sections = { o: "/", t: "/tables", s: "/calls", m: "/metastore", n: "/names", c: "/catalogues", r: "/traces" };

// The pages by their paths. A page is a module with `show(main, place)`, which returns
// what keys do there.
const pages = [
  [/^\/$/, "overview", "/console/pages/overview.js"],
  [/^\/tables\/?$/, "tables", "/console/pages/tables.js"],
  [/^\/tables\/([^/]+)\/([^/]+)\/([^/]+)\/rows$/, "tables", "/console/pages/rows.js"],
  [/^\/tables\/([^/]+)\/([^/]+)\/([^/]+)$/, "tables", "/console/pages/table.js"],
  [/^\/calls$/, "calls", "/console/pages/calls.js"],
  [/^\/metastore(?:\/(leases|members))?$/, "metastore", "/console/pages/metastore.js"],
  [/^\/names(?:\/(.*))?$/, "names", "/console/pages/names.js"],
  [/^\/catalogues(?:\/([^/]+))?$/, "catalogues", "/console/pages/catalogues.js"],
];

let shown = 0;
let keys = {};

// Shows the page of the address.
async function follow() {
  const mine = ++shown;
  const path = location.pathname;
  const [pattern, section, module] = pages.find(([pattern]) => pattern.test(path)) ?? [];
  for (const link of document.querySelectorAll(".rail a")) {
    if (link.dataset.section === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  live.stop();
  keys = {};
  document.body.dataset.page = "";
  if (!pattern) {
    main.replaceChildren(failed({ kind: "not_found", message: `There is no page ${path}.` }, null, "h1"));
    document.body.dataset.page = "failed";
    return;
  }
  try {
    const { show } = await waiting(main, import(module));
    const place = {
      parts: pattern.exec(path).slice(1).map((part) => part && decodeURIComponent(part)),
      args: args(),
      go,
      // Changes the address without showing the page again.
      note: (address) => history.replaceState(null, "", address),
      isShown: () => mine === shown,
      again: follow,
    };
    const taken = await waiting(main, show(place));
    if (mine !== shown) return;
    main.replaceChildren(taken.box);
    main.scrollTop = 0;
    keys = taken.keys ?? {};
    taken.ready?.();
    document.body.dataset.page = section;
  } catch (error) {
    if (mine !== shown) return;
    main.replaceChildren(failed(error, follow, "h1"));
    document.body.dataset.page = "failed";
  }
}

// Returns the parameters of the address as they are typed.
function args() {
  const pairs = location.search.slice(1).split("&").filter(Boolean).map((pair) => pair.split("="));
  const plain = (text = "") => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  return Object.fromEntries(pairs.map(([name, value]) => [name, plain(value)]));
}

export function go(address) {
  if (address === location.pathname + location.search) return follow();
  history.pushState(null, "", address);
  return follow();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target) return;
  const address = new URL(link.href);
  const own = pages.some(([pattern]) => pattern.test(address.pathname));
  if (address.origin !== location.origin || !own || address.hash) return;
  event.preventDefault();
  go(address.pathname + address.search).then(() => main.focus({ preventScroll: true }));
});
addEventListener("popstate", follow);

// The box at the top.

let tables = [];
async function learnTables() {
  tables = (await get("/tables").catch(() => ({ tables: [] }))).tables.filter((table) => !table.system);
  at("targets").replaceChildren(...tables.map((table) => Object.assign(document.createElement("option"), { value: table.path[2], label: table.path.slice(0, 2).join("/") })));
}

const WORDS = ["prefix", "start", "end", "regex", "value", "columns", "versions", "since", "until", "limit", "order", "key"];

// Returns the address that a typed line means.
export function meaning(line) {
  const [first, ...rest] = line.trim().split(/\s+/);
  const named = (name) => Object.entries(sections).find(([, path]) => path.slice(1) === name)?.[1];
  if (first === "get" || first === "keys") return `/metastore?prefix=${encodeURIComponent(rest[0] ?? "")}`;
  if (first === "ls") return `/names/${(rest[0] ?? "").split("/").map(encodeURIComponent).join("/")}`;
  if (first === "read") return meaning(rest.join(" "));
  if (named(first)) return named(first);
  const fits = tables.filter((table) => table.path[2] === first || table.path.join("/") === first);
  if (fits.length !== 1) return fits.length ? `/tables?find=${encodeURIComponent(first)}` : null;
  const given = rest.map((word) => {
    const [name, ...value] = word.replace(/^--/, "").split("=");
    return value.length && WORDS.includes(name) ? `${name}=${encodeURIComponent(value.join("="))}` : `key=${encodeURIComponent(word)}`;
  });
  return `/tables/${fits[0].path.map(encodeURIComponent).join("/")}/rows${given.length ? `?${given.join("&")}` : ""}`;
}

at("go").addEventListener("submit", async (event) => {
  event.preventDefault();
  await learnTables();
  const target = meaning(at("query").value);
  if (!target) {
    at("query").setCustomValidity("no table, section or command of this name");
    at("query").reportValidity();
    return;
  }
  at("query").blur();
  if (target === "/traces") location.href = target;
  else go(target).then(() => main.querySelector(".list, h1")?.focus());
});
at("query").addEventListener("input", () => at("query").setCustomValidity(""));
at("query").addEventListener("focus", learnTables);

// Health, in words.

export function showHealth(attention) {
  const urgent = attention.filter((one) => one.level !== "note");
  const level = urgent.some((one) => one.level === "failure") ? "failure" : urgent.length ? "warning" : "fine";
  at("health").dataset.level = level;
  at("health").textContent = level === "fine" ? "all is well" : many(urgent.length, "thing needs", "things need") + " attention";
}
addEventListener("stele:attention", (event) => showHealth(event.detail));

// The server may be away, and come back.

let away = 0;
addEventListener("stele:away", () => {
  if (away) return;
  document.body.classList.add("is-away");
  at("health").dataset.level = "failure";
  at("health").textContent = "the server is away";
  at("away").textContent = "The server does not answer. What you see may be old; this page goes on when it is back.";
  at("away").hidden = false;
  away = setInterval(() => get("/overview", { since: 9e15 }).catch(() => {}), 1500);
});
addEventListener("stele:here", () => {
  if (!away) return;
  clearInterval(away);
  away = 0;
  document.body.classList.remove("is-away");
  at("away").hidden = true;
  get("/overview", { since: 9e15 }).then(({ attention }) => showHealth(attention), () => {});
  dispatchEvent(new CustomEvent("stele:back"));
  if (document.body.dataset.page === "failed") follow();
});

// Theme and keys.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("stele-theme", theme);
  setTheme(theme);
}

let going = 0;
const shellKeys = {
  "/": () => at("query").focus(),
  "?": () => at("help").showModal(),
  ".": () => live.pause(),
  t: switchTheme,
  y: () => copy(location.href, "the link"),
  g: () => {
    document.body.classList.add("going");
    clearTimeout(going);
    going = setTimeout(() => document.body.classList.remove("going"), 1500);
  },
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    return at("query").focus();
  }
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "Escape" && typing) event.target.blur?.();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
  const wasGoing = document.body.classList.contains("going");
  document.body.classList.remove("going");
  if (wasGoing && sections[event.key]) {
    event.preventDefault();
    if (event.key === "r") location.href = sections.r;
    else go(sections[event.key]);
    return;
  }
  const action = keys[event.key] ?? shellKeys[event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
});

at("theme").addEventListener("click", switchTheme);
at("help-open").addEventListener("click", () => at("help").showModal());
at("pause").addEventListener("click", () => live.pause());

const system = matchMedia("(prefers-color-scheme: dark)");
setTheme(localStorage.getItem("stele-theme") ?? (system.matches ? "dark" : "light"));
get("/overview", { since: 9e15 }).then(({ attention }) => showHealth(attention), () => {});
follow();
