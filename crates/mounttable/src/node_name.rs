//! The name of a node on one server, and the key of its row.
//!
//! A node name is a list of elements separated by single slashes; the root's is empty.
//! A row key is the FNV-1 hash of the name, which spreads rows over the table, followed
//! by the name, so that hash collisions do no harm.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

pub const ELEMENT_BYTES_MAX: usize = 512;
/// A row key has at most 4,096 bytes, nine of them before the name.
pub const NAME_BYTES_MAX: usize = 4096 - HASH_DIGITS - 1;
const HASH_DIGITS: usize = 8;
/// The prefix of elements that are reserved for the server framework.
const RESERVED: &str = "__";

/// A node name. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    pub fn root() -> NodeName {
        NodeName("".into())
    }

    /// Parses a name given by a caller. Repeated slashes, `.` and `..` are handled as
    /// in paths, and there is nothing above the root.
    pub fn parse(given: &str) -> Result<NodeName> {
        let wrong = |why: String| Error::InvalidName { name: shortened(given), why };
        let mut elements = Vec::new();
        for element in given.split('/') {
            match element {
                "" | "." => {}
                ".." => drop(elements.pop()),
                element => elements.push(element),
            }
        }
        if let Some(long) = elements.iter().find(|element| element.len() > ELEMENT_BYTES_MAX) {
            let (bytes, max) = (long.len(), ELEMENT_BYTES_MAX);
            return Err(wrong(format!("an element has {bytes} bytes, the limit is {max}")));
        }
        if let Some(reserved) = elements.iter().find(|element| element.starts_with(RESERVED)) {
            return Err(wrong(format!("elements like {reserved} are reserved")));
        }
        let name = elements.join("/");
        if name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(wrong(format!("it has {bytes} bytes, the limit is {NAME_BYTES_MAX}")));
        }
        Ok(NodeName(name.into()))
    }

    /// Returns the name in a row key, or `None` if the key is not valid.
    pub fn from_row_key(key: &[u8]) -> Option<NodeName> {
        let text = std::str::from_utf8(key).ok()?;
        let name = text.get(HASH_DIGITS..)?.strip_prefix('/')?;
        let name = NodeName(name.into());
        (name.row_key().as_bytes() == key).then_some(name)
    }

    pub fn row_key(&self) -> String {
        let canonical = format!("/{}", self.0);
        format!("{:08x}{canonical}", fnv1(canonical.as_bytes()))
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn elements(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|element| !element.is_empty())
    }

    /// Returns the last element; empty for the root.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the parent; `None` for the root.
    pub fn parent(&self) -> Option<NodeName> {
        if self.is_root() {
            return None;
        }
        Some(NodeName(self.0.rsplit_once('/').map_or("", |(parent, _)| parent).into()))
    }

    /// Returns the child with that element, which is not parsed.
    pub fn child(&self, element: &str) -> NodeName {
        if self.is_root() {
            NodeName(element.into())
        } else {
            NodeName(format!("{}/{element}", self.0).into())
        }
    }

    /// Returns the root, then each longer prefix of the name up to the name itself.
    pub fn prefixes(&self) -> impl Iterator<Item = NodeName> {
        let root = std::iter::once(NodeName::root());
        let cuts = self.0.match_indices('/').map(|(at, _)| NodeName(self.0[..at].into()));
        root.chain(cuts).chain((!self.is_root()).then(|| self.clone()))
    }

    /// Returns the part after `prefix`, if the name is at or below it.
    pub fn below<'a>(&'a self, prefix: &NodeName) -> Option<&'a str> {
        if prefix.is_root() {
            return Some(&self.0);
        }
        let rest = self.0.strip_prefix(prefix.as_str())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { out.write_str("(root)") } else { out.write_str(&self.0) }
    }
}

fn shortened(name: &str) -> String {
    let mut text: String = name.chars().take(64).collect();
    if text.len() < name.len() {
        text.push_str("...");
    }
    text
}

/// Computes the 32-bit FNV-1 hash: multiply, then xor.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    #[test]
    fn row_keys_are_the_hash_and_the_name() {
        for (given, key) in [
            ("", "050c5d30/"),
            ("foo", "88e481b8/foo"),
            ("foo/bar", "aeeed5fe/foo/bar"),
            ("/foo//bar/", "aeeed5fe/foo/bar"),
            ("a", "2276b2f1/a"),
            ("users/alice", "ab2c18f5/users/alice"),
        ] {
            assert_eq!(name(given).row_key(), key);
            assert_eq!(NodeName::from_row_key(key.as_bytes()), Some(name(given)));
        }
        for foreign in ["", "050c5d30", "050c5d31/", "88e481b8/bar", "\u{fc}\u{fc}\u{fc}\u{fc}/x"] {
            assert_eq!(NodeName::from_row_key(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn names_are_parsed_like_paths_below_the_root() {
        assert_eq!(name("a/../b"), name("b"));
        assert_eq!(name("../../a/./b//"), name("a/b"));
        assert_eq!(name("a/.."), NodeName::root());
    }

    #[test]
    fn too_long_and_reserved_names_are_rejected() {
        assert!(NodeName::parse(&"x".repeat(512)).is_ok());
        for bad in ["x".repeat(513), vec!["y".repeat(500); 9].join("/"), "a/__debug".into()] {
            let error = NodeName::parse(&bad).unwrap_err();
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
    }

    #[test]
    fn prefixes_parents_and_suffixes_of_a_name() {
        let long = name("a/b/c");
        let prefixes: Vec<_> = long.prefixes().map(|prefix| prefix.to_string()).collect();
        assert_eq!(prefixes, ["(root)", "a", "a/b", "a/b/c"]);
        assert_eq!(NodeName::root().prefixes().count(), 1);
        assert_eq!((long.last(), long.parent()), ("c", Some(name("a/b"))));
        assert_eq!(name("a").parent(), Some(NodeName::root()));
        assert_eq!(NodeName::root().parent(), None);
        assert_eq!(long.below(&name("a")), Some("b/c"));
        assert_eq!(long.below(&long), Some(""));
        assert_eq!(long.below(&name("a/bb")), None);
        assert_eq!(name("ab").below(&name("a")), None);
        assert_eq!(name("a/b").child("c"), long);
    }
}
