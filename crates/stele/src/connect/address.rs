//! The addresses of servers: which service is meant, and which port it has by default.

use anyhow::{anyhow, bail};

/// The services of a server that have a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Bigtable, catalogues, names and tablets.
    Grpc,
    /// The console, traces, health and metrics.
    Http,
    Metastore,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Grpc, Service::Http, Service::Metastore];

    pub fn default_port(self) -> u16 {
        match self {
            Service::Grpc => 8086,
            Service::Http => 8080,
            Service::Metastore => 2379,
        }
    }

    /// Returns the name of its port in messages.
    pub fn name(self) -> &'static str {
        match self {
            Service::Grpc => "gRPC",
            Service::Http => "HTTP",
            Service::Metastore => "metastore",
        }
    }

    /// Returns the name of its port in the description that servers give of themselves.
    pub fn key(self) -> &'static str {
        match self {
            Service::Grpc => "grpc",
            Service::Http => "http",
            Service::Metastore => "metastore",
        }
    }
}

/// An address as typed: `host`, `host:port`, `port`, or one of these after `http://` or
/// `https://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub secure: bool,
    /// Without brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl Address {
    pub fn parse(typed: &str) -> anyhow::Result<Address> {
        let invalid = || anyhow!("invalid address {typed:?}: use host, host:port or https://host");
        let (secure, rest) = match typed.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(invalid()),
            None => (false, typed),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Ok(port) = rest.parse::<u16>() {
            return Ok(Address { secure, host: "127.0.0.1".into(), port: Some(port) });
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(invalid)?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().map_err(|_| invalid())?),
            None if port.is_empty() => None,
            None => return Err(invalid()),
        };
        let is_valid = |character: char| character.is_alphanumeric() || "-._:%".contains(character);
        if host.is_empty() || !host.chars().all(is_valid) {
            bail!(invalid());
        }
        Ok(Address { secure, host: host.into(), port })
    }

    /// Returns `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self, port: u16) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{port}", self.host),
            false => format!("{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_what_has_a_default() {
        let parsed = |typed: &str| {
            let Address { secure, host, port } = Address::parse(typed).unwrap();
            (secure, host, port)
        };
        for (typed, secure, host, port) in [
            ("db", false, "db", None),
            ("db:1", false, "db", Some(1)),
            ("18300", false, "127.0.0.1", Some(18300)),
            ("http://db:1/", false, "db", Some(1)),
            ("https://db.example.com", true, "db.example.com", None),
            ("[::1]:7", false, "::1", Some(7)),
            ("https://[::1]", true, "::1", None),
        ] {
            assert_eq!(parsed(typed), (secure, host.into(), port), "{typed}");
        }
        for wrong in ["", "host:port", "ftp://h", "h:99999", "[::1", "[::1]x", "a b", ":1", "a/b"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Address::parse("[::1]:7").unwrap().authority(9), "[::1]:9");
    }
}
