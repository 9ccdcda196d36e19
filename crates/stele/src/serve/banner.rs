//! The readiness message of a server: a few lines for people and exactly one for
//! programs.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;

use serde_json::json;

use super::settings::Size;
use super::status::ServerInfo;
use crate::output::things;

/// Who reads the readiness message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// People read standard error, programs standard output.
    Everybody,
    /// Programs that wait for the line that Google's emulator prints.
    EmulatorClients,
}

/// Reports that the server accepts requests. Ignores write errors: a closed output is no
/// reason to stop.
pub fn print_ready(audience: Audience, info: &ServerInfo, memory: Size) {
    let mut out = io::stdout().lock();
    let printed = match audience {
        Audience::Everybody => {
            let _ = io::stderr().lock().write_all(banner(info, memory).as_bytes());
            // A person has read the banner; the line is for programs.
            match out.is_terminal() {
                true => Ok(()),
                false => writeln!(out, "{}", readiness(info)),
            }
        }
        Audience::EmulatorClients => match info.grpc {
            Some(address) => writeln!(out, "Cloud Bigtable emulator running on {address}"),
            None => Ok(()),
        },
    };
    if let Err(error) = printed.and_then(|()| out.flush()) {
        tracing::debug!(%error, "cannot write to standard output");
    }
}

fn readiness(info: &ServerInfo) -> serde_json::Value {
    let address = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    json!({
        "ready": true,
        "grpc": address(info.grpc),
        "http": address(info.http),
        "dns": address(info.dns),
        "metastore": address(info.metastore),
        "data": info.data.display().to_string(),
        "store": info.store,
        "pid": std::process::id(),
    })
}

fn banner(info: &ServerInfo, memory: Size) -> String {
    let mut lines = vec![format!("stele {}", env!("CARGO_PKG_VERSION"))];
    if let Some(address) = info.grpc {
        lines.push(format!("  gRPC    {address}  Bigtable API, catalogues, names"));
    }
    if let Some(address) = info.http {
        let scheme = if info.tls { "https" } else { "http" };
        lines.push(format!("  HTTP    {scheme}://{address}/  console, /traces, /health, /metrics"));
    }
    if let Some(address) = info.dns {
        lines.push(format!("  DNS     {address}  names"));
    }
    if let Some(address) = info.metastore {
        lines.push(format!("  etcd    {address}  metastore: etcd v3 API, gRPC and JSON"));
    }
    let lifetime = if info.ephemeral { "  temporary, removed at exit" } else { "" };
    lines.push(format!("  data    {}{lifetime}", info.data.display()));
    if let Some(store) = &info.store {
        lines.push(format!("  store   {store}  files of tables"));
    }
    lines.push(format!("  memory  {memory}"));
    let open = [info.grpc, info.http, info.metastore]
        .into_iter()
        .flatten()
        .any(|at| !at.ip().is_loopback());
    if info.callers_are_checked {
        lines.push("  auth    on: callers need a credential and a permission".into());
    }
    if open && !info.callers_are_checked {
        lines.push(warning(info).into());
    }
    if let Some(rules) = info.fault_rules {
        let rules = things(rules as u64, "rule");
        lines.push(format!("  Faults are injected on purpose ({rules}): see stele inject."));
    }
    if let Some(export) = export(info) {
        lines.push(String::new());
        lines.push(format!("  export {export}"));
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

/// Returns the one variable that leads clients to this server. Google's clients and all
/// commands of Stele honour the emulator's; it cannot say that a server uses TLS.
fn export(info: &ServerInfo) -> Option<String> {
    let scheme = if info.tls { "https://" } else { "" };
    match info.grpc {
        Some(grpc) if !info.tls => Some(format!("BIGTABLE_EMULATOR_HOST={}", reachable(grpc))),
        grpc => {
            let address = grpc.or(info.http).or(info.metastore)?;
            Some(format!("STELE_SERVER={scheme}{}", reachable(address)))
        }
    }
}

/// Returns a warning about who can access ports that other machines reach.
fn warning(info: &ServerInfo) -> &'static str {
    match (info.tls, info.client_certificates) {
        (false, _) => {
            "  WARNING: listening beyond loopback without TLS or authentication: anyone who can \
             connect can read and write."
        }
        (true, false) => {
            "  WARNING: listening beyond loopback without authentication: anyone who can connect \
             can read and write."
        }
        (true, true) => {
            "  WARNING: anyone with a certificate of the client CA can read and write everything."
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

    fn info(grpc: &str) -> ServerInfo {
        ServerInfo {
            grpc: Some(grpc.parse().unwrap()),
            http: None,
            dns: None,
            metastore: None,
            data: "d\"ir".into(),
            store: None,
            ephemeral: true,
            tls: false,
            client_certificates: false,
            callers_are_checked: false,
            fault_rules: None,
        }
    }

    #[test]
    fn the_banner_says_what_to_export_and_who_can_come_in() {
        let local = banner(&info("127.0.0.1:8086"), Size(512 << 20));
        assert!(local.contains("\n  export BIGTABLE_EMULATOR_HOST=127.0.0.1:8086\n"), "{local}");
        assert!(local.contains("temporary") && !local.contains("WARNING"), "{local}");
        let open = banner(&info("0.0.0.0:1"), Size(1 << 30));
        assert!(open.contains("=127.0.0.1:1\n") && open.contains("without TLS"), "{open}");
        let tls = ServerInfo { tls: true, ..info("0.0.0.0:1") };
        let encrypted = banner(&tls, Size(1 << 30));
        assert!(encrypted.contains("export STELE_SERVER=https://127.0.0.1:1\n"), "{encrypted}");
        let metastore = ServerInfo {
            grpc: None,
            metastore: Some("[::]:7".parse().unwrap()),
            ..info("0.0.0.0:1")
        };
        assert_eq!(export(&metastore).unwrap(), "STELE_SERVER=[::1]:7");
        assert!(encrypted.contains("without authentication"), "{encrypted}");
        let certified = banner(&ServerInfo { client_certificates: true, ..tls }, Size(1 << 30));
        assert!(certified.contains("anyone with a certificate"), "{certified}");
        let checked = ServerInfo { callers_are_checked: true, ..info("0.0.0.0:1") };
        let checked = banner(&checked, Size(1 << 30));
        assert!(checked.contains("auth    on") && !checked.contains("WARNING"), "{checked}");
        let faulty =
            banner(&ServerInfo { fault_rules: Some(2), ..info("127.0.0.1:1") }, Size(1 << 30));
        assert!(faulty.contains("2 rules"), "{faulty}");
    }

    #[test]
    fn the_readiness_line_is_one_line_of_json() {
        let line = readiness(&info("[::1]:5")).to_string();
        assert!(!line.contains('\n'));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["grpc"], &read["http"]), (&json!("[::1]:5"), &json!(null)));
        assert_eq!((&read["data"], &read["ready"]), (&json!("d\"ir"), &json!(true)));
    }
}
