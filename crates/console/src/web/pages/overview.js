// The overview: what needs attention, rates of the last 15 minutes, the server, methods.

import { get } from "/console/lib/api.js";
import { Spark } from "/console/lib/chart.js";
import { listen } from "/console/lib/live.js";
import { bytes, count, h, head, micros, rate, span, table } from "/console/lib/parts.js";

const SAMPLES_MAX = 900;

export async function show() {
  const data = await get("/overview");
  let samples = data.rates;
  const charts = [
    new Spark("Reads per second", (it) => [it.reads], rate),
    new Spark("Writes per second", (it) => [it.writes], rate),
    new Spark("Duration of reads and writes", (it) => [it.p50_micros, it.p99_micros], micros, ["median", "99 %"]),
    new Spark("Failed calls per second", (it) => [it.failed], rate),
    new Spark("Traffic per second", (it) => [it.received_bytes, it.sent_bytes], bytes, ["in", "out"]),
    new Spark("Writes that waited per second", (it) => [it.throttled], rate),
    new Spark("Processors in use", (it) => [it.cpu], (number) => (number ?? 0).toFixed(2)),
    new Spark("Memory", (it) => [it.resident_bytes], bytes),
  ];
  const draw = () => charts.forEach((chart) => chart.draw(samples));
  const attention = h("section", { class: "panel", "aria-label": "needs attention" });
  const showAttention = (all) => {
    const items = all.map(({ level, text, link }) => h("li", { class: level }, h("b", {}, level), h("span", {}, text, link ? [" ", h("a", { href: link }, "look")] : "")));
    attention.replaceChildren(h("h2", {}, "Needs attention"), items.length ? h("ul", { class: "attention" }, items) : h("p", { class: "soft" }, "Nothing. Reads, writes and background work go on as they should."));
  };
  showAttention(data.attention);
  const uptime = h("span", {});
  const since = Date.now() - data.server.uptime_seconds * 1000;
  const tick = () => (uptime.textContent = span((Date.now() - since) / 1000));
  tick();
  draw();
  const box = h(
    "div",
    { class: "page" },
    head("Overview", `Stele ${data.server.version}`),
    h("div", { class: "tiles" }, charts.map((chart) => chart.box)),
    attention,
    h("div", { class: "columns" }, server(data, uptime), storage(data.gauges)),
    methods(data.methods),
  );
  const ready = () =>
    listen(() => "topics=rates", {
      rates: (sample) => {
        samples = [...samples.filter((one) => one.at < sample.at), sample].slice(-SAMPLES_MAX);
        draw();
        tick();
      },
      attention: (all) => {
        showAttention(all);
        dispatchEvent(new CustomEvent("stele:attention", { detail: all }));
      },
    });
  return { box, ready };
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function server({ server, writes, minute }, uptime) {
  const transport = server.tls ? "TLS" : "plain text";
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Server"),
    facts([
      ["gRPC", server.grpc && `${server.grpc} · Bigtable API, catalogues, names`],
      ["metastore", server.metastore && `${server.metastore} · etcd v3 API`],
      ["DNS", server.dns],
      ["transport", transport],
      ["data", server.data],
      ["object store", server.store],
      ["up for", uptime],
      ["connections", `${minute.connections}, ${minute.in_flight} calls in progress`],
      ["this console", writes ? "reads and writes" : "reads only (--console write)"],
      ["for programs", [h("a", { href: "/metrics" }, "metrics"), " · ", h("a", { href: "/health" }, "health")]],
    ]),
  );
}

function meter(used, limit) {
  const share = limit > 0 ? Math.min(1, used / limit) : 0;
  const bar = h("i", {});
  bar.style.width = `${(share * 100).toFixed(1)}%`;
  return [`${bytes(used)} of ${bytes(limit)}`, h("span", { class: "meter", "aria-hidden": "true" }, bar)];
}

function storage(gauges) {
  const disk = gauges.disk;
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Storage"),
    facts([
      ["cells in memory", meter(gauges.memory_bytes, gauges.memory_limit_bytes)],
      ["cached blocks", meter(gauges.cache_bytes, gauges.cache_limit_bytes)],
      ["disk", disk && meter(disk.total_bytes - disk.free_bytes, disk.total_bytes)],
      ["cache of the object store", gauges.objects && meter(gauges.objects.cache_bytes, gauges.objects.cache_limit_bytes)],
      ["tablets", count(gauges.tablets)],
      ["files", `${count(gauges.fragments)}, ${bytes(gauges.fragment_bytes)}`],
      ["longest chain", `${gauges.chain_longest} runs`],
      ["flushes, compactions", `${count(gauges.flushes)}, ${count(gauges.compactions)}`],
      ["log syncs", count(gauges.log_syncs)],
    ]),
  );
}

export function methods(all) {
  if (!all.length) return null;
  const sorted = [...all].sort((a, b) => b.calls - a.calls);
  const short = (path) => path.replace(/^\/(google\.bigtable\.|stele\.|etcdserverpb\.)/, "").replace(/^\//, "");
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Methods", h("span", { class: "soft" }, "since the server started")),
    table(
      [
        { name: "method", show: (it) => short(it.path), mono: true },
        { name: "calls", show: (it) => count(it.calls), number: true },
        { name: "failed", show: (it) => (it.failed ? h("span", { class: "bad" }, count(it.failed)) : "0"), number: true },
        { name: "median", show: (it) => micros(it.p50_micros), number: true },
        { name: "99 %", show: (it) => micros(it.p99_micros), number: true },
        { name: "received", show: (it) => bytes(it.received_bytes), number: true },
        { name: "sent", show: (it) => bytes(it.sent_bytes), number: true },
      ],
      sorted,
    ),
  );
}
