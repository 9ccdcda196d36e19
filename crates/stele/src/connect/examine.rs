//! Looks at every port of the server that commands use, for people who wonder why a
//! command does not reach it.

use std::sync::Arc;

use super::address::{Address, Service};
use super::probe::{Found, Ports, probe};
use super::server::{GOOGLE, ServerArgs, Source};
use super::tls::TlsFiles;

/// The server that commands use, and its ports.
pub struct Examined {
    pub typed: String,
    pub source: Source,
    pub ports: Vec<ExaminedPort>,
}

pub struct ExaminedPort {
    pub name: &'static str,
    pub answers: bool,
    pub text: String,
}

/// Asks each port of the server what it is.
pub fn examine(server: &ServerArgs, tls: &TlsFiles) -> anyhow::Result<Examined> {
    let chosen = server.choose(&[])?;
    let files = tls.or(chosen.context.as_ref());
    let mut ports = Vec::new();
    if chosen.typed != GOOGLE {
        let mut address = Address::parse(&chosen.typed)?;
        address.secure |= !chosen.typed.contains("://") && files.is_given();
        let config = match address.secure {
            true => Some(Arc::new(files.client_config()?)),
            false => None,
        };
        let known = Service::ALL.map(Service::default_port);
        let first: Vec<u16> = address.port.map_or(known.to_vec(), |port| vec![port]);
        let described =
            first.iter().find_map(|port| match probe(&address, *port, config.clone()) {
                Found::Stele(ports) => Some(ports),
                _ => None,
            });
        for service in Service::ALL {
            ports.push(one(&address, service, described.as_ref(), config.clone()));
        }
    }
    Ok(Examined { typed: chosen.typed, source: chosen.source, ports })
}

fn one(
    address: &Address,
    service: Service,
    described: Option<&Ports>,
    config: Option<Arc<rustls::ClientConfig>>,
) -> ExaminedPort {
    let name = service.name();
    let port = match described {
        Some(ports) => ports.of(service),
        None => Some(address.port.unwrap_or(service.default_port())),
    };
    let Some(port) = port else {
        return ExaminedPort { name, answers: false, text: "off".into() };
    };
    let at = address.authority(port);
    let (answers, text) = match probe(address, port, config) {
        Found::Stele(ports) => (true, format!("{at} answers, Stele {}", ports.stele)),
        Found::OtherHttp => (false, format!("{at} is another HTTP server")),
        Found::Other => (false, format!("{at} is something else")),
        Found::Unreachable(why) => (false, format!("{at}: {why}")),
    };
    ExaminedPort { name, answers, text }
}
