//! The address of a coordinator, as in `--coordinator`.

use std::fmt;
use std::str::FromStr;

/// An address that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAddress(pub(crate) String);

/// Where the coordinator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorAddress {
    /// The metastore of this process.
    Embedded,
    /// Servers of the etcd API, and a prefix of all keys.
    Etcd { addresses: Vec<String>, prefix: String },
}

impl FromStr for CoordinatorAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<CoordinatorAddress, InvalidAddress> {
        let invalid = |why: &str| {
            InvalidAddress(format!(
                "invalid coordinator {text:?}: {why}; use etcd://host:port,host:port/prefix, \
                 etcds:// for TLS, or embedded"
            ))
        };
        if text == "embedded" {
            return Ok(CoordinatorAddress::Embedded);
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let scheme = match scheme {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(invalid("unknown scheme")),
        };
        let (hosts, prefix) = match rest.find('/') {
            Some(at) => (&rest[..at], rest[at..].trim_end_matches('/')),
            None => (rest, ""),
        };
        let mut addresses = Vec::new();
        for host in hosts.split(',') {
            if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
                return Err(invalid("a server must be host or host:port"));
            }
            // etcd's port, unless another is given.
            let has_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
            let port = if has_port { "" } else { ":2379" };
            addresses.push(format!("{scheme}://{host}{port}"));
        }
        Ok(CoordinatorAddress::Etcd { addresses, prefix: prefix.to_string() })
    }
}

impl fmt::Display for CoordinatorAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoordinatorAddress::Embedded => out.write_str("embedded"),
            CoordinatorAddress::Etcd { addresses, prefix } => {
                let secure = addresses.iter().any(|address| address.starts_with("https://"));
                let hosts = addresses.iter().map(|address| {
                    address.split_once("://").map_or(&address[..], |(_, host)| host)
                });
                let hosts: Vec<&str> = hosts.collect();
                let scheme = if secure { "etcds" } else { "etcd" };
                write!(out, "{scheme}://{}{prefix}", hosts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_has_servers_and_may_have_a_prefix() {
        let parsed = |text: &str| text.parse::<CoordinatorAddress>();
        let etcd = |addresses: &[&str], prefix: &str| CoordinatorAddress::Etcd {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            prefix: prefix.into(),
        };
        assert_eq!(parsed("embedded"), Ok(CoordinatorAddress::Embedded));
        let one = etcd(&["http://a:1", "http://b:2379"], "");
        assert_eq!(parsed("etcd://a:1,b"), Ok(one));
        let prefixed = etcd(&["https://[::1]:7", "https://[::2]:2379"], "/x/y");
        assert_eq!(parsed("etcds://[::1]:7,[::2]/x/y/"), Ok(prefixed.clone()));
        assert_eq!(prefixed.to_string(), "etcds://[::1]:7,[::2]:2379/x/y");
        for wrong in ["", "a:1", "http://a", "etcd://", "etcd://a,", "etcd://user@a", "Embedded"] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(error.contains("invalid coordinator"), "{wrong}: {error}");
        }
    }
}
