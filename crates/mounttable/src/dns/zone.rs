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
        Ok(Zone { origin: origin.to_lowercase() })
    }

    pub fn origin(&self) -> &Name {
        &self.origin
    }

    /// Returns `None` if the name is not in the zone.
    pub fn meaning(&self, asked: &Name) -> Option<Meaning> {
        let asked = asked.to_lowercase();
        if !self.origin.zone_of(&asked) {
            return None;
        }
        let own = usize::from(asked.num_labels() - self.origin.num_labels());
        let labels: Option<Vec<&str>> =
            asked.iter().take(own).map(|label| std::str::from_utf8(label).ok()).collect();
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

    fn meaning(asked: &str) -> Option<Meaning> {
        Zone::new("stele").unwrap().meaning(&Name::from_utf8(asked).unwrap())
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
}
