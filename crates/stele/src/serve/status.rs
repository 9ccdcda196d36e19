//! The status page: version, addresses, contents and activity of this server.

use std::fmt::{Display, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_engine::TabletSummary;

use super::data_dir::DataDir;
use super::http::PageState;
use super::listen::{ListeningPort, Ports};
use super::metrics::Process;
use super::tablets_page;
use crate::output::{bytes, count, things};

/// The addresses and the data directory of a server.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub dns: Option<SocketAddr>,
    pub metastore: Option<SocketAddr>,
    pub data: PathBuf,
    /// The address of the object store with the files of tables, if there is one.
    pub store: Option<String>,
    pub ephemeral: bool,
    pub tls: bool,
    /// Whether clients must present a certificate.
    pub client_certificates: bool,
    /// The number of fault injection rules; `None` if injection is disabled.
    pub fault_rules: Option<usize>,
}

impl ServerInfo {
    pub fn new(ports: &Ports, data_dir: &DataDir) -> anyhow::Result<ServerInfo> {
        let address =
            |port: &Option<ListeningPort>| port.as_ref().map(ListeningPort::address).transpose();
        Ok(ServerInfo {
            grpc: address(&ports.grpc)?,
            http: address(&ports.http)?,
            dns: None,
            metastore: address(&ports.metastore)?,
            data: data_dir.path.clone(),
            store: None,
            ephemeral: data_dir.is_temporary(),
            tls: ports.tls,
            client_certificates: false,
            fault_rules: None,
        })
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color:#222}table{border-collapse:collapse;margin:.5rem 0 1.5rem}\
td,th{padding:.15rem 1.2rem .15rem 0;text-align:left;font-weight:normal}\
th{color:#666}td.n{text-align:right;font-variant-numeric:tabular-nums}code{background:#f3f3f3}";

pub fn page(state: &PageState) -> String {
    let mut page = Page::begin(&format!("Stele {}", env!("CARGO_PKG_VERSION")));
    page.server(state);
    page.store(state);
    page.tables(&state.components.store.tablet_summaries());
    page.calls(state);
    page.raw("<p><a href=\"/traces\">traces</a> · <a href=\"/metrics\">metrics</a> · <a href=\"/health\">health</a></html>");
    page.finish()
}

/// A page in HTML.
pub struct Page(String);

impl Page {
    /// Starts a page with a heading.
    pub fn begin(heading: &str) -> Page {
        let mut page = Page(String::with_capacity(8 << 10));
        page.raw("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
        page.raw("<meta name=\"viewport\" content=\"width=device-width\"><title>Stele</title>");
        page.raw(&format!("<style>{STYLE}</style><h1>"));
        page.text(heading);
        page.raw("</h1>");
        page
    }

    pub fn finish(self) -> String {
        self.0
    }

    pub fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Appends arbitrary text, escaped.
    pub fn text(&mut self, text: impl Display) {
        for character in text.to_string().chars() {
            match character {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                character => self.0.push(character),
            }
        }
    }

    fn line(&mut self, name: &str, value: impl Display) {
        self.raw("<tr><th>");
        self.text(name);
        self.raw("<td>");
        self.text(value);
    }

    fn server(&mut self, state: &PageState) {
        let (info, process) = (&state.info, Process::now());
        self.raw("<table>");
        if let Some(address) = info.grpc {
            self.line("Bigtable API (gRPC)", address);
        }
        if let Some(address) = info.metastore {
            self.line("metastore (etcd API)", address);
        }
        let lifetime = if info.ephemeral { "temporary, removed at exit" } else { "durable" };
        self.line("data", format!("{} ({lifetime})", info.data.display()));
        if let Some(objects) = &state.components.objects {
            let (used, limit) = objects.cached_bytes();
            self.line("object store", objects.address());
            self.line("disk cache", format!("{} of {}", bytes(used), bytes(limit)));
        }
        self.line("transport", if info.tls { "TLS" } else { "plain text" });
        let clients = match info.client_certificates {
            true => "anyone with a certificate of the client CA can read and write everything",
            false => "anonymous: anyone who can connect can read and write",
        };
        self.line("clients", clients);
        if let Some(injector) = &state.injector {
            let rules = injector.rules();
            self.line(
                "fault injection",
                format!("on, {}", things(rules.rules.len() as u64, "rule")),
            );
            for rule in &rules.rules {
                self.line("", rule);
            }
        }
        self.line("uptime", format_uptime(state.metrics.started.elapsed()));
        self.line("resident memory", bytes(process.resident_bytes));
        self.line("CPU time", format!("{:.1} s", process.cpu_seconds));
        self.line("connections", count(state.metrics.grpc.open.load(Ordering::Relaxed)));
        self.line("calls in progress", count(state.metrics.in_flight.load(Ordering::Relaxed)));
        self.raw("</table>");
    }

    fn store(&mut self, state: &PageState) {
        let stats = state.components.store.stats();
        let of = |used: u64, limit: u64| format!("{} of {}", bytes(used), bytes(limit));
        self.raw("<h2>Store</h2><table>");
        self.line("tables", count(state.components.store.tables().len() as u64));
        let memory = of(stats.memory_used_bytes as u64, stats.memory_limit_bytes as u64);
        self.line("cells in memory", memory);
        self.line("cached blocks", of(stats.cache.bytes, stats.cache.capacity_bytes));
        let fragments = count(stats.fragments as u64);
        self.line("fragments", format!("{fragments}, {}", bytes(stats.fragment_bytes)));
        self.line("longest chain", stats.chain_longest);
        self.line("flushes, compactions", format!("{}, {}", stats.flushes, stats.compactions));
        self.line("log syncs", count(stats.log.syncs));
        for failure in state.components.failures() {
            self.line("failed", format!("{}: {}", failure.component, failure.reason));
        }
        for warning in state.components.warnings() {
            self.line("warning", warning);
        }
        self.raw("</table>");
    }

    fn tables(&mut self, tables: &[TabletSummary]) {
        if tables.is_empty() {
            return;
        }
        self.raw("<h2>Tables</h2><table><tr><th>table<th>tablets<th>on disk<th>largest tablet");
        for table in tables {
            self.raw("<tr><td>");
            tablets_page::link(self, &table.table);
            let sizes = [bytes(table.disk_bytes), bytes(table.largest_bytes)];
            self.number(count(table.tablets as u64));
            sizes.into_iter().for_each(|size| self.number(size));
        }
        self.raw("</table>");
    }

    /// Appends a cell of a table, aligned to the right.
    pub fn number(&mut self, value: impl Display) {
        self.raw("<td class=\"n\">");
        self.text(value);
    }

    fn calls(&mut self, state: &PageState) {
        self.raw("<h2>Calls</h2><table><tr><th>method<th>calls<th>failed<th>mean");
        for method in state.metrics.methods.all() {
            let calls = method.calls();
            if calls == 0 {
                continue;
            }
            let failed = calls - method.codes[0].load(Ordering::Relaxed).min(calls);
            let mean = method.nanos.load(Ordering::Relaxed) / calls / 1000;
            self.raw("<tr><td>");
            self.text(&method.path);
            for value in [count(calls), count(failed), format!("{} µs", count(mean))] {
                self.number(value);
            }
        }
        self.raw("</table>");
    }
}

fn format_uptime(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut text = String::new();
    for (unit, length, wraps) in [("d", 86_400, u64::MAX), ("h", 3_600, 24), ("m", 60, 60)] {
        if seconds >= length {
            let _ = write!(text, "{} {unit} ", seconds / length % wraps);
        }
    }
    let _ = write!(text, "{} s", seconds % 60);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_say_is_shown_and_not_obeyed() {
        let mut page = Page(String::new());
        page.line("a&b", "<script>\"'");
        assert_eq!(page.0, "<tr><th>a&amp;b<td>&lt;script&gt;&quot;&#39;");
    }

    #[test]
    fn times_are_shown_for_people() {
        let text = |seconds| format_uptime(Duration::from_secs(seconds));
        assert_eq!([text(0), text(59), text(3_661)], ["0 s", "59 s", "1 h 1 m 1 s"]);
        assert_eq!(text(10 * 86_400 + 5), "10 d 0 h 0 m 5 s");
    }
}
