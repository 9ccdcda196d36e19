//! The readiness message of a server: a few lines for people and exactly one for
//! programs.

use std::io::{self, Write};
use std::net::SocketAddr;

use serde_json::json;

use super::settings::Size;
use super::status::Place;
use crate::output::things;

/// The audience of the readiness message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// People read standard error, programs standard output.
    Everybody,
    /// Programs that wait for the line that Google's emulator prints.
    EmulatorClients,
}

/// Reports that the server accepts requests. Ignores write errors: a closed output is no
/// reason to stop.
pub fn say_ready(reader: Reader, place: &Place, memory: Size) {
    let mut out = io::stdout().lock();
    let said = match reader {
        Reader::Everybody => {
            let _ = io::stderr().lock().write_all(banner(place, memory).as_bytes());
            writeln!(out, "{}", readiness(place))
        }
        Reader::EmulatorClients => match place.grpc {
            Some(address) => writeln!(out, "Cloud Bigtable emulator running on {address}"),
            None => Ok(()),
        },
    };
    if let Err(error) = said.and_then(|()| out.flush()) {
        tracing::debug!(%error, "nobody reads standard output");
    }
}

fn readiness(place: &Place) -> serde_json::Value {
    let address = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    json!({
        "ready": true,
        "grpc": address(place.grpc),
        "http": address(place.http),
        "dns": address(place.dns),
        "metastore": address(place.metastore),
        "data": place.data.display().to_string(),
        "pid": std::process::id(),
    })
}

fn banner(place: &Place, memory: Size) -> String {
    let mut lines = vec![format!("stele {}", env!("CARGO_PKG_VERSION"))];
    if let Some(address) = place.grpc {
        lines.push(format!("  gRPC    {address}  Bigtable API, catalogues, names"));
    }
    if let Some(address) = place.http {
        let scheme = if place.tls { "https" } else { "http" };
        lines.push(format!("  HTTP    {scheme}://{address}/  status, /traces, /health, /metrics"));
    }
    if let Some(address) = place.dns {
        lines.push(format!("  DNS     {address}  names"));
    }
    if let Some(address) = place.metastore {
        lines.push(format!("  etcd    {address}  metastore: etcd v3 API, gRPC and JSON"));
    }
    let kept = if place.ephemeral { "  temporary, removed at exit" } else { "" };
    lines.push(format!("  data    {}{kept}", place.data.display()));
    lines.push(format!("  memory  {memory}"));
    let open = [place.grpc, place.http, place.metastore]
        .into_iter()
        .flatten()
        .any(|at| !at.ip().is_loopback());
    if open {
        lines.push(warning(place).into());
    }
    if let Some(rules) = place.injects {
        let rules = things(rules as u64, "rule");
        lines.push(format!("  Faults are injected on purpose ({rules}): see stele inject."));
    }
    if let Some(address) = place.grpc {
        lines.push(String::new());
        lines.push(format!("  export BIGTABLE_EMULATOR_HOST={}", reachable(address)));
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

/// Returns a warning about who can access ports that other machines reach.
fn warning(place: &Place) -> &'static str {
    match (place.tls, place.client_certificates) {
        (false, _) => "  Anybody who reaches these ports can read and write: there is no TLS.",
        (true, false) => {
            "  Anybody who reaches these ports can read and write: TLS encrypts, but nobody is authenticated."
        }
        (true, true) => {
            "  Anybody with a certificate of the client CA can read and write everything."
        }
    }
}

/// Returns the address by which this machine reaches the port.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(grpc: &str) -> Place {
        Place {
            grpc: Some(grpc.parse().unwrap()),
            http: None,
            dns: None,
            metastore: None,
            data: "d\"ir".into(),
            ephemeral: true,
            tls: false,
            client_certificates: false,
            injects: None,
        }
    }

    #[test]
    fn the_banner_says_what_to_export_and_who_can_come_in() {
        let local = banner(&place("127.0.0.1:8086"), Size(512 << 20));
        assert!(local.contains("\n  export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086\n"), "{local}");
        assert!(local.contains("temporary") && !local.contains("Anybody"), "{local}");
        let open = banner(&place("0.0.0.0:1"), Size(1 << 30));
        assert!(open.contains("=127.0.0.1:1\n") && open.contains("Anybody"), "{open}");
        let tls = Place { tls: true, ..place("0.0.0.0:1") };
        let encrypted = banner(&tls, Size(1 << 30));
        assert!(encrypted.contains("nobody is authenticated"), "{encrypted}");
        let certified = banner(&Place { client_certificates: true, ..tls }, Size(1 << 30));
        assert!(certified.contains("Anybody with a certificate"), "{certified}");
        let faulty = banner(&Place { injects: Some(2), ..place("127.0.0.1:1") }, Size(1 << 30));
        assert!(faulty.contains("2 rules"), "{faulty}");
    }

    #[test]
    fn the_readiness_line_is_one_line_of_json() {
        let line = readiness(&place("[::1]:5")).to_string();
        assert!(!line.contains('\n'));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["grpc"], &read["http"]), (&json!("[::1]:5"), &json!(null)));
        assert_eq!((&read["data"], &read["ready"]), (&json!("d\"ir"), &json!(true)));
    }
}
