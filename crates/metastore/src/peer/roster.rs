//! The members of a cluster, by name and address, as given at its creation.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ring::digest::{SHA256, digest};

use crate::error::{Error, Result};

/// The address of a member for other members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUrl {
    pub tls: bool,
    pub host: String,
    pub port: u16,
}

impl PeerUrl {
    /// Parses `http://host:port` or `https://host:port`.
    pub fn parse(text: &str) -> Result<PeerUrl> {
        let invalid = |why: &str| Error::Config(format!("invalid peer URL \"{text}\": {why}"));
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(invalid("use http://host:port or https://host:port")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| invalid("it has no port"))?;
        let port = port.parse().map_err(|_| invalid("the port is not a number up to 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        Ok(PeerUrl { tls, host: host.to_string(), port })
    }

    /// Returns whether the address can only be reached from this machine.
    pub fn is_loopback(&self) -> bool {
        let address: std::result::Result<IpAddr, _> = self.host.parse();
        address.map_or(self.host == "localhost", |address| address.is_loopback())
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let host = &self.host;
        match host.contains(':') {
            true => write!(out, "{scheme}://[{host}]:{}", self.port),
            false => write!(out, "{scheme}://{host}:{}", self.port),
        }
    }
}

/// The members of a cluster, one of which is this one.
#[derive(Clone, Debug)]
pub struct Roster {
    name: String,
    members: BTreeMap<String, PeerUrl>,
}

/// The sizes of a cluster: with an even one, no more members may fail than with
/// one member fewer.
const SIZES: [usize; 4] = [1, 3, 5, 7];

impl Roster {
    /// Parses etcd's `--initial-cluster` of a new cluster: `name=url` separated by
    /// commas.
    pub fn parse(name: &str, members: &str) -> Result<Roster> {
        let roster = Roster::parse_existing(name, members)?;
        let size = roster.members.len();
        if !SIZES.contains(&size) {
            return Err(Error::Config(format!(
                "invalid members: {size} members: use 1, 3, 5 or 7"
            )));
        }
        Ok(roster)
    }

    /// Like `parse`, for a member that joins a cluster of any size.
    pub fn parse_existing(name: &str, members: &str) -> Result<Roster> {
        let refuse = |why: String| Err(Error::Config(format!("invalid members: {why}")));
        let mut found = BTreeMap::new();
        for member in members.split(',').map(str::trim).filter(|member| !member.is_empty()) {
            let Some((name, url)) = member.split_once('=') else {
                return refuse(format!("\"{member}\" is not name=url"));
            };
            let url = PeerUrl::parse(url)?;
            if found.values().any(|other| *other == url) {
                return refuse(format!("two members have the address {url}"));
            }
            if found.insert(name.to_string(), url).is_some() {
                return refuse(format!("two members have the name \"{name}\""));
            }
        }
        if !found.contains_key(name) {
            return refuse(format!("this member, \"{name}\", is not among them"));
        }
        let encrypted = found.values().filter(|url| url.tls).count();
        if encrypted != 0 && encrypted != found.len() {
            return refuse("some have https addresses and some http: use one for all".to_string());
        }
        if encrypted == 0
            && let Some(url) = found.values().find(|url| !url.is_loopback())
        {
            return refuse(format!(
                "{url} is not on this machine: use https addresses and certificates"
            ));
        }
        Ok(Roster { name: name.to_string(), members: found })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the cluster, which depends on all members.
    pub fn cluster_id(&self) -> u64 {
        let lines = self.members.iter().map(|(name, url)| format!("{name}={url}\n"));
        id_of(&format!("cluster\n{}", lines.collect::<String>()))
    }

    pub fn member_id(&self) -> u64 {
        self.id_of_member(&self.name)
    }

    /// Returns the address of this member.
    pub fn url(&self) -> &PeerUrl {
        &self.members[&self.name]
    }

    /// Returns all members: id, name and address.
    pub fn members(&self) -> impl Iterator<Item = (u64, &str, &PeerUrl)> {
        self.members.iter().map(|(name, url)| (self.id_of_member(name), name.as_str(), url))
    }

    /// Returns the other members.
    pub fn others(&self) -> impl Iterator<Item = (u64, &PeerUrl)> {
        let others = self.members().filter(|(_, name, _)| *name != self.name);
        others.map(|(id, _, url)| (id, url))
    }

    fn id_of_member(&self, name: &str) -> u64 {
        let url = &self.members[name];
        id_of(&format!("member\n{:x}\n{name}={url}\n", self.cluster_id()))
    }
}

/// Returns an id that is never 0.
fn id_of(text: &str) -> u64 {
    let hash = digest(&SHA256, text.as_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://[::1]:3";

    #[test]
    fn all_members_derive_the_same_ids() {
        let rosters = ["a", "b", "c"].map(|name| Roster::parse(name, THREE).unwrap());
        let ids = |roster: &Roster| -> Vec<u64> { roster.members().map(|(id, ..)| id).collect() };
        for roster in &rosters {
            assert_eq!(roster.cluster_id(), rosters[0].cluster_id());
            assert_eq!(ids(roster), ids(&rosters[0]));
            assert_eq!(roster.others().count(), 2);
        }
        let own: Vec<u64> = rosters.iter().map(Roster::member_id).collect();
        assert_eq!(own, ids(&rosters[0]));
        let other = Roster::parse("a", &THREE.replace(":3", ":4")).unwrap();
        assert_ne!(other.cluster_id(), rosters[0].cluster_id());
        assert_ne!(other.member_id(), rosters[0].member_id());
        assert_eq!(rosters[2].url().to_string(), "http://[::1]:3");
    }

    #[test]
    fn wrong_members_are_refused_with_the_reason() {
        let refusal =
            |name: &str, members: &str| Roster::parse(name, members).unwrap_err().to_string();
        for (name, members, why) in [
            ("d", THREE, "this member, \"d\", is not among them"),
            ("a", "a=http://127.0.0.1:1,b=http://127.0.0.1:2", "2 members: use 1, 3, 5 or 7"),
            ("a", "a", "\"a\" is not name=url"),
            ("a", "a=ftp://x:1", "use http://host:port or https://host:port"),
            ("a", "a=http://x", "it has no port"),
            ("a", "a=http://:1", "it has no host"),
            ("a", "a=http://127.0.0.1:1,a=http://127.0.0.1:2", "the name \"a\""),
            ("a", "a=http://127.0.0.1:1,b=http://127.0.0.1:1", "the address http://127.0.0.1:1"),
            ("a", "a=http://10.0.0.1:1", "use https addresses and certificates"),
            (
                "a",
                "a=http://127.0.0.1:1,b=https://10.0.0.1:2,c=https://10.0.0.2:2",
                "use one for all",
            ),
        ] {
            let refusal = refusal(name, members);
            assert!(refusal.contains(why), "{refusal}");
        }
        assert!(Roster::parse("a", "a=https://10.0.0.1:1").is_ok());
    }
}
