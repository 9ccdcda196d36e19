//! Finds the server that a command uses, and the port of the service that it needs. All
//! commands search in the same order: flags, `STELE_SERVER`, the variables of single
//! services, the context in use, this machine.

use std::env;
use std::fmt;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use rustls::ClientConfig;

use super::address::{Address, Service};
use super::contexts::{Context, Contexts};
use super::probe::{Found, Ports, probe};
use super::tls::TlsFiles;

/// The name of Cloud Bigtable in place of an address.
pub const GOOGLE: &str = "google";

/// The variables that name one service of a server. The others are found from it.
const VARIABLES: [(&str, Service); 5] = [
    ("STELE_ENDPOINT", Service::Grpc),
    ("BIGTABLE_EMULATOR_HOST", Service::Grpc),
    ("STELE_NAMES", Service::Grpc),
    ("STELE_METASTORE", Service::Metastore),
    ("STELE_HTTP", Service::Http),
];
/// The variable that names the server of every command.
const VARIABLE: &str = "STELE_SERVER";
const CONTEXT_VARIABLE: &str = "STELE_CONTEXT";
const HERE: &str = "127.0.0.1";

#[derive(Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// Server: host, host:port with any of its ports, or https://host:port for TLS
    /// [default: $STELE_SERVER, else the context in use, else this machine]
    #[arg(
        id = "server-address",
        long = "server",
        value_name = "HOST:PORT",
        aliases = ["endpoint", "root", "http"],
        verbatim_doc_comment
    )]
    server: Option<String>,
    /// Use the server of this context; see `stele context`.
    #[arg(
        id = "server-context",
        long = "context",
        value_name = "NAME",
        conflicts_with = "server-address"
    )]
    context: Option<String>,
    /// Show on standard error which server is used, and why.
    #[arg(id = "server-verbose", short = 'v', long = "verbose")]
    verbose: bool,
}

/// Where the address of a server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Context(String),
    Variable(&'static str),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => formatter.write_str("--server"),
            Source::Context(name) => write!(formatter, "context {name}"),
            Source::Variable(name) => write!(formatter, "${name}"),
            Source::Default => formatter.write_str("the default"),
        }
    }
}

/// A server as chosen by flags, environment and contexts.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub typed: String,
    pub source: Source,
    /// The context that chose it.
    pub context: Option<Context>,
}

/// The port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub secure: bool,
    /// `host:port`
    pub authority: String,
}

impl Target {
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Returns `host:port`, or `https://host:port`.
    pub fn endpoint(&self) -> String {
        if self.secure { self.url() } else { self.authority.clone() }
    }
}

impl ServerArgs {
    /// Returns the arguments that name a context, or nothing.
    pub fn of_context(context: Option<String>) -> ServerArgs {
        ServerArgs { context, ..ServerArgs::default() }
    }

    /// Chooses the server. Of the variables of single services, `own` is preferred.
    pub fn choose(&self, own: &[&str]) -> anyhow::Result<Chosen> {
        if let Some(typed) = &self.server {
            return Ok(Chosen { typed: typed.clone(), source: Source::Flag, context: None });
        }
        if let Some(name) = &self.context {
            return in_context(&Contexts::read()?, name);
        }
        if let Some(typed) = variable(VARIABLE) {
            return Ok(Chosen { typed, source: Source::Variable(VARIABLE), context: None });
        }
        if let Some(name) = variable(CONTEXT_VARIABLE) {
            return in_context(&Contexts::read()?, &name);
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            VARIABLES.iter().partition(|(name, _)| own.contains(name));
        for (name, _) in mine.into_iter().chain(others) {
            let is_own = own.contains(&name);
            if let Some(typed) = variable(name).filter(|typed| is_own || typed != GOOGLE) {
                return Ok(Chosen { typed, source: Source::Variable(name), context: None });
            }
        }
        let contexts = Contexts::read()?;
        match &contexts.current {
            Some(name) => in_context(&contexts, name),
            None => Ok(Chosen { typed: HERE.into(), source: Source::Default, context: None }),
        }
    }

    /// Finds the port of a service of the server chosen.
    pub fn find(
        &self,
        chosen: &Chosen,
        service: Service,
        tls: &TlsFiles,
    ) -> anyhow::Result<Target> {
        let target = find(chosen, &chosen.typed, service, tls)?;
        self.report(chosen, service, &target);
        Ok(target)
    }

    /// Does the same for each of several addresses, separated by commas.
    pub fn find_all(
        &self,
        chosen: &Chosen,
        service: Service,
        tls: &TlsFiles,
    ) -> anyhow::Result<Vec<Target>> {
        let one = |typed: &str| {
            let target = find(chosen, typed, service, tls)?;
            self.report(chosen, service, &target);
            Ok(target)
        };
        chosen.typed.split(',').map(|typed| one(typed.trim_start_matches('/'))).collect()
    }

    fn report(&self, chosen: &Chosen, service: Service, target: &Target) {
        if self.verbose {
            eprintln!("stele: {} at {}, from {}", service.name(), target.endpoint(), chosen.source);
        }
    }
}

/// Returns a variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn in_context(contexts: &Contexts, name: &str) -> anyhow::Result<Chosen> {
    let context = contexts.get(name)?.clone();
    let source = Source::Context(name.into());
    Ok(Chosen { typed: context.server.clone(), source, context: Some(context) })
}

/// Finds the port of a service at an address as typed. Asks the port if it may be that of
/// another service.
fn find(chosen: &Chosen, typed: &str, service: Service, tls: &TlsFiles) -> anyhow::Result<Target> {
    let mut address =
        Address::parse(typed).map_err(|error| anyhow::anyhow!("{}: {error}", chosen.source))?;
    address.secure |= !typed.contains("://") && tls.is_given();
    let target = |port: u16| Target { secure: address.secure, authority: address.authority(port) };
    let Some(port) = address.port.filter(|port| *port != service.default_port()) else {
        return Ok(target(service.default_port()));
    };
    let config = || -> anyhow::Result<Option<Arc<ClientConfig>>> {
        Ok(if address.secure { Some(Arc::new(tls.client_config()?)) } else { None })
    };
    let is_own = match &chosen.source {
        Source::Variable(name) => VARIABLES.iter().all(|(one, of)| one != name || *of == service),
        _ => true,
    };
    match probe(&address, port, config()?) {
        Found::Stele(ports) => Ok(target(derived(&ports, &address, port, service)?)),
        Found::OtherHttp if service == Service::Grpc => bail!(
            "{} speaks HTTP/1.1, not gRPC: it is not a port of this version of Stele; pass the \
             gRPC port with --server",
            address.authority(port)
        ),
        Found::Unreachable(_) | Found::Other | Found::OtherHttp if is_own => Ok(target(port)),
        Found::Unreachable(why) => bail!(
            "cannot reach {} (from {}): {why}; start a server with `stele serve`, or pass its \
             address with --server",
            address.authority(port),
            chosen.source
        ),
        Found::Other | Found::OtherHttp => bail!(
            "{} (from {}) does not describe its ports, so its {} port is unknown; pass it with \
             --server",
            address.authority(port),
            chosen.source,
            service.name()
        ),
    }
}

/// Returns the port of a service, given how one of the server's ports describes them.
fn derived(ports: &Ports, at: &Address, given: u16, service: Service) -> anyhow::Result<u16> {
    let answered = ports.answered();
    if answered == Some(service) {
        return Ok(given);
    }
    let kind = answered.map_or("a", Service::name);
    let place = format!("{} is the {kind} port of Stele {}", at.authority(given), ports.stele);
    let Some(port) = ports.of(service) else {
        bail!("{place}; its {} port is off", service.name());
    };
    // A port that is forwarded says nothing about how the others are.
    if answered.is_some_and(|answered| ports.of(answered) != Some(given)) {
        bail!("{place}, forwarded from another; pass the {} port with --server", service.name());
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_port_leads_to_the_others() {
        let ports = Ports {
            stele: "0.1.0".into(),
            this: "http".into(),
            grpc: Some(7),
            http: Some(8),
            metastore: None,
        };
        let at = Address::parse("h:8").unwrap();
        assert_eq!(derived(&ports, &at, 8, Service::Http).unwrap(), 8);
        assert_eq!(derived(&ports, &at, 8, Service::Grpc).unwrap(), 7);
        let off = derived(&ports, &at, 8, Service::Metastore).unwrap_err().to_string();
        assert_eq!(off, "h:8 is the HTTP port of Stele 0.1.0; its metastore port is off");
        let forwarded = derived(&ports, &at, 80, Service::Grpc).unwrap_err().to_string();
        assert!(forwarded.contains("forwarded") && forwarded.contains("gRPC"), "{forwarded}");
        assert_eq!(derived(&ports, &at, 80, Service::Http).unwrap(), 80);
    }

    #[test]
    fn default_ports_are_not_asked_for() {
        let chosen =
            |typed: &str| Chosen { typed: typed.into(), source: Source::Default, context: None };
        let tls = TlsFiles::default();
        for (typed, service, expected) in [
            ("db", Service::Grpc, "db:8086"),
            ("db:8086", Service::Grpc, "db:8086"),
            ("http://db", Service::Metastore, "db:2379"),
            ("https://db", Service::Http, "https://db:8080"),
        ] {
            let chosen = chosen(typed);
            let found = find(&chosen, &chosen.typed, service, &tls).unwrap();
            assert_eq!(found.endpoint(), expected);
        }
        let wrong = find(&chosen("host:port"), "host:port", Service::Grpc, &tls).unwrap_err();
        assert!(wrong.to_string().contains("invalid address"), "{wrong}");
    }
}
