//! Removes expired servers, and nodes that are empty, not sticky, and old enough.

use std::sync::Arc;

use super::Mounttable;
use crate::clock;
use crate::error::Result;
use crate::node::Node;

/// What can be removed at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Garbage {
    None,
    Servers,
    /// The node, if it has no children.
    Node,
}

/// How reliably a node must have no children before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildCheck {
    /// Recently seen children are enough to keep the node, so that operations that only
    /// pass do not read each time.
    Recent,
    Current,
}

/// Decides what can be removed at a node.
pub(super) fn garbage(node: &Node, now_micros: i64, grace_micros: i64) -> Garbage {
    if node.expired(now_micros).next().is_some() {
        return Garbage::Servers;
    }
    let in_use = node.sticky || !node.servers.is_empty();
    let is_young = now_micros - node.created_micros < grace_micros;
    if node.name.is_root() || in_use || is_young { Garbage::None } else { Garbage::Node }
}

impl Mounttable {
    pub(super) fn garbage(&self, node: &Node) -> Garbage {
        garbage(node, self.now(), clock::micros(self.options.grace))
    }

    /// Removes the garbage at a node, and ancestors that become empty. Returns whether
    /// anything was removed; then the caller reads the node again.
    pub(super) async fn collect(&self, node: &Arc<Node>, check: ChildCheck) -> Result<bool> {
        let (mut node, mut check) = (node.clone(), check);
        let mut cleared = false;
        loop {
            match self.garbage(&node) {
                Garbage::None => return Ok(cleared),
                Garbage::Servers => {
                    self.rows.unmount(&node, node.expired(self.now())).await?;
                    return Ok(true);
                }
                Garbage::Node => {
                    if self.has_children(&node, check).await? {
                        return Ok(cleared);
                    }
                    // Adding a child after this check changes the version.
                    self.rows.delete_node(&node).await?;
                }
            }
            // The ancestors have just lost a child.
            (cleared, check) = (true, ChildCheck::Current);
            let parent = node.name.parent().expect("the root is never garbage");
            match self.rows.get(&parent).await? {
                Some(parent) => node = parent,
                None => return Ok(true),
            }
        }
    }

    async fn has_children(&self, node: &Node, check: ChildCheck) -> Result<bool> {
        match check {
            ChildCheck::Recent => self.rows.has_children(&node.name).await,
            ChildCheck::Current => self.rows.has_children_now(&node.name).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Flags, Server};

    #[test]
    fn only_old_nodes_without_servers_that_are_not_sticky_are_removed() {
        let empty = Node::sample("a");
        assert_eq!(garbage(&empty, 1000, 0), Garbage::Node);
        assert_eq!(garbage(&empty, 60_999, 60_000), Garbage::None);
        assert_eq!(garbage(&empty, 61_000, 60_000), Garbage::Node);
        assert_eq!(garbage(&Node::sample(""), 61_000, 0), Garbage::None);
        assert_eq!(garbage(&Node { sticky: true, ..empty }, 61_000, 0), Garbage::None);
    }

    #[test]
    fn expired_servers_go_even_from_sticky_nodes() {
        let server =
            Server { address: "h:1".into(), deadline_micros: 5000, flags: Flags::default() };
        let mounted = Node { servers: vec![server], sticky: true, ..Node::sample("a") };
        assert_eq!(garbage(&mounted, 5000, 0), Garbage::None);
        assert_eq!(garbage(&mounted, 5001, 0), Garbage::Servers);
    }
}
