//! The status page: version, addresses, contents and activity of this server.

use std::fmt::{Display, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::home::Home;
use super::http::Shown;
use super::listen::{ListeningPort, Ports};
use super::metrics::Process;
use crate::output::{bytes, count, things};

/// The addresses and the data directory of a server.
#[derive(Clone, Debug)]
pub struct Place {
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub dns: Option<SocketAddr>,
    pub metastore: Option<SocketAddr>,
    pub data: PathBuf,
    pub ephemeral: bool,
    pub tls: bool,
    /// Whether clients must present a certificate.
    pub client_certificates: bool,
    /// The number of fault injection rules; `None` if injection is disabled.
    pub injects: Option<usize>,
}

impl Place {
    pub fn new(ports: &Ports, home: &Home) -> anyhow::Result<Place> {
        let address =
            |port: &Option<ListeningPort>| port.as_ref().map(ListeningPort::address).transpose();
        Ok(Place {
            grpc: address(&ports.grpc)?,
            http: address(&ports.http)?,
            dns: None,
            metastore: address(&ports.metastore)?,
            data: home.dir.clone(),
            ephemeral: home.is_temporary(),
            tls: ports.tls,
            client_certificates: false,
            injects: None,
        })
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color:#222}table{border-collapse:collapse;margin:.5rem 0 1.5rem}\
td,th{padding:.15rem 1.2rem .15rem 0;text-align:left;font-weight:normal}\
th{color:#666}td.n{text-align:right;font-variant-numeric:tabular-nums}code{background:#f3f3f3}";

pub fn page(shown: &Shown) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    let version = env!("CARGO_PKG_VERSION");
    page.raw("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width\"><title>Stele</title>");
    page.raw(&format!("<style>{STYLE}</style><h1>Stele {version}</h1>"));
    page.server(shown);
    page.store(shown);
    page.calls(shown);
    page.raw("<p><a href=\"/traces\">traces</a> · <a href=\"/metrics\">metrics</a> · <a href=\"/health\">health</a></html>");
    page.0
}

struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Appends arbitrary text, escaped.
    fn text(&mut self, text: impl Display) {
        for letter in text.to_string().chars() {
            match letter {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                letter => self.0.push(letter),
            }
        }
    }

    fn line(&mut self, name: &str, value: impl Display) {
        self.raw("<tr><th>");
        self.text(name);
        self.raw("<td>");
        self.text(value);
    }

    fn server(&mut self, shown: &Shown) {
        let (place, process) = (&shown.place, Process::now());
        self.raw("<table>");
        if let Some(address) = place.grpc {
            self.line("Bigtable API (gRPC)", address);
        }
        if let Some(address) = place.metastore {
            self.line("metastore (etcd API)", address);
        }
        let kept = if place.ephemeral { "temporary, removed at exit" } else { "durable" };
        self.line("data", format!("{} ({kept})", place.data.display()));
        self.line("transport", if place.tls { "TLS" } else { "plain text" });
        let callers = match place.client_certificates {
            true => "anybody with a certificate of the client CA may read and write everything",
            false => "anonymous: anybody who reaches a port may read and write",
        };
        self.line("callers", callers);
        if let Some(injector) = &shown.injector {
            let rules = injector.rules();
            self.line(
                "fault injection",
                format!("on, {}", things(rules.rules.len() as u64, "rule")),
            );
            for rule in &rules.rules {
                self.line("", rule);
            }
        }
        self.line("up for", whole_seconds(shown.metrics.started.elapsed()));
        self.line("memory of the process", bytes(process.resident_bytes));
        self.line("processor time", format!("{:.1} s", process.cpu_seconds));
        self.line("connections", count(shown.metrics.grpc.open.load(Ordering::Relaxed)));
        self.line("calls being served", count(shown.metrics.in_flight.load(Ordering::Relaxed)));
        self.raw("</table>");
    }

    fn store(&mut self, shown: &Shown) {
        let stats = shown.parts.store.stats();
        let of = |used: u64, limit: u64| format!("{} of {}", bytes(used), bytes(limit));
        self.raw("<h2>Store</h2><table>");
        self.line("tables", count(shown.parts.store.tables().len() as u64));
        let memory = of(stats.memory_used_bytes as u64, stats.memory_limit_bytes as u64);
        self.line("cells in memory", memory);
        self.line("cached blocks", of(stats.cache.bytes, stats.cache.capacity_bytes));
        let fragments = count(stats.fragments as u64);
        self.line("fragments", format!("{fragments}, {}", bytes(stats.fragment_bytes)));
        self.line("longest chain", stats.chain_longest);
        self.line("flushes, compactions", format!("{}, {}", stats.flushes, stats.compactions));
        self.line("log syncs", count(stats.log.syncs));
        for failure in shown.parts.failures() {
            self.line("failed", format!("{}: {}", failure.part, failure.reason));
        }
        for warning in shown.parts.warnings() {
            self.line("warning", warning);
        }
        self.raw("</table>");
    }

    fn calls(&mut self, shown: &Shown) {
        self.raw("<h2>Calls</h2><table><tr><th>method<th>calls<th>failed<th>mean");
        for method in shown.metrics.methods.all() {
            let calls = method.calls();
            if calls == 0 {
                continue;
            }
            let failed = calls - method.codes[0].load(Ordering::Relaxed).min(calls);
            let mean = method.nanos.load(Ordering::Relaxed) / calls / 1000;
            self.raw("<tr><td>");
            self.text(&method.path);
            for value in [count(calls), count(failed), format!("{} µs", count(mean))] {
                self.raw("<td class=\"n\">");
                self.text(value);
            }
        }
        self.raw("</table>");
    }
}

fn whole_seconds(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut shown = String::new();
    for (unit, length, wraps) in [("d", 86_400, u64::MAX), ("h", 3_600, 24), ("m", 60, 60)] {
        if seconds >= length {
            let _ = write!(shown, "{} {unit} ", seconds / length % wraps);
        }
    }
    let _ = write!(shown, "{} s", seconds % 60);
    shown
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
        let shown = |seconds| whole_seconds(Duration::from_secs(seconds));
        assert_eq!([shown(0), shown(59), shown(3_661)], ["0 s", "59 s", "1 h 1 m 1 s"]);
        assert_eq!(shown(10 * 86_400 + 5), "10 d 0 h 0 m 5 s");
    }
}
