//! Addresses of servers in the forms that Mount accepts: `host:port`, a rooted name, or
//! a whole endpoint.

use std::fmt;

use stele_grpc::percent;

use crate::error::{Error, Result};
use crate::name;

pub const ADDRESS_BYTES_MAX: usize = 2048;

/// The address of a server and the properties in its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    pub protocol: String,
    pub address: String,
    pub routes: Vec<String>,
    pub routing_id: String,
    pub kind: Kind,
    pub blessings: Vec<String>,
}

/// The kind of server behind an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Mounttable,
    Server,
    Leaf,
}

impl Endpoint {
    /// Parses `[(blessing)@]host:port[#]` or `@6@...@@`.
    pub fn parse(text: &str) -> Option<Endpoint> {
        if text.starts_with('@') { parse_whole(text) } else { parse_host_port(text) }
    }

    /// Parses the address of a rooted name, or an address that is not rooted.
    pub fn of_server(server: &str) -> Option<Endpoint> {
        if name::is_rooted(server) {
            Endpoint::parse(&name::split_address(server).0)
        } else {
            Endpoint::parse(server)
        }
    }

    pub fn is_mounttable(&self) -> bool {
        self.kind == Kind::Mounttable
    }

    /// Returns the host and the port, if the port is a number.
    pub fn host_port(&self) -> Option<(&str, u16)> {
        let (host, port) = self.address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some((host, port.parse().ok()?))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<_> = self.routes.iter().map(|route| escape(route)).collect();
        let kind = match self.kind {
            Kind::Mounttable => "m",
            Kind::Server => "s",
            Kind::Leaf => "l",
        };
        write!(
            out,
            "@6@{}@{}@{}@{}@{kind}@{}@@",
            self.protocol,
            escape(&self.address),
            routes.join(","),
            self.routing_id,
            self.blessings.join(","),
        )
    }
}

/// Checks a server address before it is mounted.
pub fn check(server: &str) -> Result<()> {
    let wrong = |why: &str| Error::MalformedAddress {
        server: server.chars().take(64).collect(),
        why: why.into(),
    };
    if server.len() > ADDRESS_BYTES_MAX {
        return Err(wrong("it is longer than 2,048 bytes"));
    }
    match Endpoint::of_server(server) {
        Some(_) => Ok(()),
        None => Err(wrong("use host:port, /host:port, /host:port/suffix or an endpoint @6@...@@")),
    }
}

fn parse_host_port(text: &str) -> Option<Endpoint> {
    let (blessing, host_port) = match text.strip_prefix('(') {
        Some(rest) => rest.split_once(")@").map(|(blessing, rest)| (Some(blessing), rest))?,
        None => (None, text),
    };
    let (host_port, kind) = match host_port.strip_suffix('#') {
        Some(host_port) => (host_port, Kind::Server),
        None => (host_port, Kind::Mounttable),
    };
    let (host, port) = host_port.rsplit_once(':')?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_fits = bracketed || !host.contains([':', '[', ']']);
    if !host_fits || host.contains(['@', '/']) || port.contains(['@', '/', ']']) {
        return None;
    }
    Some(Endpoint {
        address: host_port.into(),
        kind,
        blessings: blessing.into_iter().map(str::to_string).collect(),
        ..Endpoint::default()
    })
}

fn parse_whole(text: &str) -> Option<Endpoint> {
    let fields = text.strip_prefix("@6@")?.strip_suffix("@@")?;
    // Blessings may contain an @, so only the fields before them are split.
    let mut fields = fields.splitn(6, '@');
    let mut next = || fields.next();
    let (protocol, address, routes, routing_id) = (next()?, next()?, next()?, next()?);
    let kind = match next()? {
        "" | "m" => Kind::Mounttable,
        "s" => Kind::Server,
        "l" => Kind::Leaf,
        _ => return None,
    };
    let blessings = list(next()?).map(str::to_string).collect();
    let address = if address.is_empty() { ":0".into() } else { percent::decode(address)? };
    Some(Endpoint {
        protocol: protocol.into(),
        address,
        routes: list(routes).map(percent::decode).collect::<Option<_>>()?,
        routing_id: routing_id.into(),
        kind,
        blessings,
    })
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

/// Escapes `@`, `,` and `%` as `%NN`.
fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('@', "%40").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_addresses_can_be_mounted() {
        for good in [
            "h:1",
            "/h:1",
            "/h:1/a/b",
            "h:",
            "h:8000#",
            "[::1]:8000",
            "/(dev:u:ann@x.org)@h:1",
            "@6@tcp@127.0.0.1:10@@00000000000000000000000000000000@m@dev,b@@",
            "/@6@@@@@s@dev:u:ann@x.org@@/suffix",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        let long = format!("h:{}", "1".repeat(ADDRESS_BYTES_MAX));
        for bad in [
            "",
            "h",
            "/h",
            "/",
            "a@h:1",
            "::1:8000",
            "(dev)h:1",
            "@5@tcp@h:1@@@m@@@",
            "@6@tcp@h:1",
            "@6@tcp@h:1@@@x@@@",
            "@6@tcp@h%zz:1@@@m@@@",
            "h/x:1",
            &long,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn endpoints_are_formatted_as_they_are_parsed() {
        let endpoint = Endpoint {
            protocol: "tcp".into(),
            address: "h@,%:1".into(),
            routes: vec!["r1".into(), "a,b".into()],
            routing_id: "ff".into(),
            kind: Kind::Leaf,
            blessings: vec!["dev:u:ann@x.org".into(), "b".into()],
        };
        assert_eq!(Endpoint::parse(&endpoint.to_string()), Some(endpoint));
        let empty = Endpoint::parse("@6@@@@@@@@").unwrap();
        assert_eq!((empty.address.as_str(), empty.kind), (":0", Kind::Mounttable));
    }

    #[test]
    fn host_and_port_are_split() {
        let at = |text: &str| {
            let endpoint = Endpoint::of_server(text)?;
            endpoint.host_port().map(|(host, port)| (host.to_string(), port))
        };
        assert_eq!(at("/[::1]:53/x"), Some(("::1".into(), 53)));
        assert_eq!(at("example.com:80#"), Some(("example.com".into(), 80)));
        assert_eq!(at("example.com:http"), None);
        assert!(!Endpoint::of_server("h:1#").unwrap().is_mounttable());
    }
}
