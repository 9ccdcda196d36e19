//! Removes expired servers, and nodes that are empty, not sticky, and old enough.

use std::sync::Arc;

use super::Mounttable;
use crate::clock;
use crate::error::Result;
use crate::node::Node;

/// What is to be removed at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Servers,
    /// The node, if it has no children.
    Node,
}

/// How reliably a node must have no children before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildCheck {
    /// Recently seen children are enough to keep the node, so that operations that only
    /// pass do not read each time.
    Lately,
    Now,
}

/// Decides what is due at a node.
pub(super) fn due(node: &Node, now_micros: i64, grace_micros: i64) -> Due {
    if node.expired(now_micros).next().is_some() {
        return Due::Servers;
    }
    let in_use = node.sticky || !node.servers.is_empty();
    let is_young = now_micros - node.created_micros < grace_micros;
    if node.name.is_root() || in_use || is_young { Due::Nothing } else { Due::Node }
}

impl Mounttable {
    pub(super) fn due(&self, node: &Node) -> Due {
        due(node, self.now(), clock::micros(self.options.grace))
    }

    /// Removes what is due at a node, and ancestors that become empty. Returns whether
    /// anything was removed; then the caller reads the node again.
    pub(super) async fn collect(&self, node: &Arc<Node>, check: ChildCheck) -> Result<bool> {
        let (mut node, mut check) = (node.clone(), check);
        let mut cleared = false;
        loop {
            match self.due(&node) {
                Due::Nothing => return Ok(cleared),
                Due::Servers => {
                    self.rows.unmount(&node, node.expired(self.now())).await?;
                    return Ok(true);
                }
                Due::Node => {
                    if self.has_children(&node, check).await? {
                        return Ok(cleared);
                    }
                    // Adding a child after this check changes the version.
                    self.rows.delete_node(&node).await?;
                }
            }
            // The ancestors have just lost a child.
            (cleared, check) = (true, ChildCheck::Now);
            let parent = node.name.parent().expect("the root is never due");
            match self.rows.get(&parent).await? {
                Some(parent) => node = parent,
                None => return Ok(true),
            }
        }
    }

    async fn has_children(&self, node: &Node, check: ChildCheck) -> Result<bool> {
        match check {
            ChildCheck::Lately => self.rows.has_children(&node.name).await,
            ChildCheck::Now => self.rows.has_children_now(&node.name).await,
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
        assert_eq!(due(&empty, 1000, 0), Due::Node);
        assert_eq!(due(&empty, 60_999, 60_000), Due::Nothing);
        assert_eq!(due(&empty, 61_000, 60_000), Due::Node);
        assert_eq!(due(&Node::sample(""), 61_000, 0), Due::Nothing);
        assert_eq!(due(&Node { sticky: true, ..empty }, 61_000, 0), Due::Nothing);
    }

    #[test]
    fn expired_servers_go_even_from_sticky_nodes() {
        let server =
            Server { address: "h:1".into(), deadline_micros: 5000, flags: Flags::default() };
        let mounted = Node { servers: vec![server], sticky: true, ..Node::sample("a") };
        assert_eq!(due(&mounted, 5000, 0), Due::Nothing);
        assert_eq!(due(&mounted, 5001, 0), Due::Servers);
    }
}
