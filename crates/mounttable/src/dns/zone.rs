//! Maps DNS names to nodes: labels are elements, the last element first. In the zone
//! `stele.`, `phone.alice.users.stele.` is `users/alice/phone`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_server::proto::rr::Name;

use crate::node_name::NodeName;

/// Names `HEX.addr.ZONE` resolve to the addresses that they spell, so that SRV records
/// have targets.
const ADDRESSES: &str = "addr";

/// The zone that is served. Names are compared in lower case.
#[derive(Clone, Debug)]
pub struct Zone {
    origin: Name,
    name_server: Option<NameServer>,
}

/// Where the server of a zone is found, as its NS record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameServer {
    /// A name of another zone, which has its address.
    Name(Name),
    Address(IpAddr),
}

/// The meaning of a name in the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A node, without leading labels such as `_http` and `_tcp`.
    Node(NodeName),
    Address(IpAddr),
    /// A name that no node can have.
    Nothing,
}

impl Zone {
    pub fn new(origin: &str) -> Result<Zone, String> {
        let mut origin =
            Name::from_utf8(origin).map_err(|error| format!("invalid zone {origin}: {error}"))?;
        origin.set_fqdn(true);
        if origin.is_root() {
            return Err("the DNS root cannot be the zone: use a name such as stele".into());
        }
        Ok(Zone { origin: origin.to_lowercase(), name_server: None })
    }

    /// With the name or the IP address of the zone's server.
    pub fn served_at(mut self, host: &str) -> Result<Zone, String> {
        self.name_server = Some(match host.trim_matches(['[', ']']).parse() {
            Ok(address) => NameServer::Address(address),
            Err(_) => {
                let mut name = Name::from_utf8(host).map_err(|error| format!("{host}: {error}"))?;
                name.set_fqdn(true);
                if name.is_root() || self.origin.zone_of(&name) {
                    return Err(format!(
                        "invalid host {host}: use an IP address, or a name outside the zone"
                    ));
                }
                NameServer::Name(name)
            }
        });
        Ok(self)
    }

    /// With the address that it is served at, unless another one is known or
    /// this stands for all addresses of the machine.
    pub fn listening_on(mut self, address: IpAddr) -> Zone {
        if self.name_server.is_none() && !address.is_unspecified() {
            self.name_server = Some(NameServer::Address(address));
        }
        self
    }

    /// The name of the zone's server, and its address if this zone has it.
    pub fn name_server(&self) -> Option<(Name, Option<IpAddr>)> {
        match self.name_server.as_ref()? {
            NameServer::Name(name) => Some((name.clone(), None)),
            NameServer::Address(address) => Some((self.host(*address)?, Some(*address))),
        }
    }

    pub fn origin(&self) -> &Name {
        &self.origin
    }

    /// Returns `None` if the name is not in the zone.
    pub fn meaning(&self, queried: &Name) -> Option<Meaning> {
        let queried = queried.to_lowercase();
        if !self.origin.zone_of(&queried) {
            return None;
        }
        let own = usize::from(queried.num_labels() - self.origin.num_labels());
        let labels: Option<Vec<&str>> =
            queried.iter().take(own).map(|label| std::str::from_utf8(label).ok()).collect();
        let Some(labels) = labels else { return Some(Meaning::Nothing) };
        if let [hex, ADDRESSES] = &labels[..]
            && let Some(address) = parse_address(hex)
        {
            return Some(Meaning::Address(address));
        }
        let service = labels.iter().take_while(|label| label.starts_with('_')).count();
        let elements: Vec<_> = labels[service..].iter().rev().copied().collect();
        let node = NodeName::parse(&elements.join("/")).ok();
        // An element with a slash, or one such as `..`, would be another name.
        let node = node.filter(|node| node.elements().eq(elements));
        Some(node.map_or(Meaning::Nothing, Meaning::Node))
    }

    /// Returns the name that resolves to an address.
    pub fn host(&self, address: IpAddr) -> Option<Name> {
        let hex = match address {
            IpAddr::V4(address) => format!("{:08x}", u32::from(address)),
            IpAddr::V6(address) => format!("{:032x}", u128::from(address)),
        };
        Name::from_utf8(format!("{hex}.{ADDRESSES}")).ok()?.append_domain(&self.origin).ok()
    }
}

fn parse_address(hex: &str) -> Option<IpAddr> {
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match hex.len() {
        8 => Some(Ipv4Addr::from(u32::from_str_radix(hex, 16).ok()?).into()),
        32 => Some(Ipv6Addr::from(u128::from_str_radix(hex, 16).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(queried: &str) -> Option<Meaning> {
        Zone::new("stele").unwrap().meaning(&Name::from_utf8(queried).unwrap())
    }

    fn node(name: &str) -> Option<Meaning> {
        Some(Meaning::Node(NodeName::parse(name).unwrap()))
    }

    #[test]
    fn labels_are_elements_in_reverse_order() {
        assert_eq!(meaning("stele."), node(""));
        assert_eq!(meaning("Phone.ALICE.users.Stele."), node("users/alice/phone"));
        assert_eq!(meaning("_http._tcp.web.stele."), node("web"));
        assert_eq!(meaning("example.com."), None);
        assert_eq!(meaning("notstele."), None);
        let odd = |label: &[u8]| {
            let name = Name::from_labels([label, b"stele"]).unwrap();
            Zone::new("stele").unwrap().meaning(&name)
        };
        assert_eq!(odd(b"a.b"), node("a.b"));
        assert_eq!(odd(b"a/b"), Some(Meaning::Nothing));
        assert_eq!(odd(b".."), Some(Meaning::Nothing));
        assert_eq!(odd(b"\xff"), Some(Meaning::Nothing));
        assert_eq!(meaning("x.__debug.stele."), Some(Meaning::Nothing));
    }

    #[test]
    fn addresses_have_names() {
        let zone = Zone::new("Stele.").unwrap();
        for text in ["127.0.0.1", "2001:db8::1"] {
            let address: IpAddr = text.parse().unwrap();
            let host = zone.host(address).unwrap();
            assert_eq!(zone.meaning(&host), Some(Meaning::Address(address)), "{host}");
        }
        assert_eq!(
            zone.host("127.0.0.1".parse().unwrap()).unwrap().to_string(),
            "7f000001.addr.stele."
        );
        assert!(Zone::new(".").is_err() && Zone::new("").is_err());
    }

    #[test]
    fn a_zone_is_served_where_it_can_be_found() {
        let zone = || Zone::new("stele").unwrap();
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(zone().name_server(), None);
        assert_eq!(zone().listening_on("0.0.0.0".parse().unwrap()).name_server(), None);
        let found = zone().listening_on(address).name_server().unwrap();
        assert_eq!((found.0.to_string(), found.1), ("7f000001.addr.stele.".into(), Some(address)));
        for (host, name, address) in [
            ("ns1.example.com", "ns1.example.com.", None),
            ("10.0.0.1", "0a000001.addr.stele.", Some("10.0.0.1")),
            ("[::1]", "00000000000000000000000000000001.addr.stele.", Some("::1")),
        ] {
            let zone = zone().served_at(host).unwrap().listening_on("127.0.0.2".parse().unwrap());
            let found = zone.name_server().unwrap();
            let expected = address.map(|address| address.parse().unwrap());
            assert_eq!((found.0.to_string(), found.1), (name.into(), expected), "{host}");
        }
        for bad in ["ns.stele", ".", "a..b"] {
            assert!(zone().served_at(bad).is_err(), "{bad}");
        }
    }
}
