//! The result of resolving a name.

use crate::node::{Flags, Node, Server};

/// A node as returned to callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The rest of the name for the servers, or the name that was found.
    pub name: String,
    pub servers: Vec<Server>,
    pub flags: Flags,
}

impl Entry {
    /// Returns a node with its live servers.
    pub(super) fn of(node: &Node, name: impl Into<String>, now_micros: i64) -> Entry {
        Entry {
            name: name.into(),
            servers: node.live(now_micros).cloned().collect(),
            flags: node.flags(now_micros),
        }
    }

    /// Returns each server's address joined with the name.
    pub fn names(&self) -> Vec<String> {
        let join = |server: &Server| crate::name::join_address(&server.address, &self.name);
        self.servers.iter().map(join).collect()
    }
}
