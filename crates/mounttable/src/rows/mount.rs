//! Changes the contents of a node: its servers and permissions.

use stele_bigtable_client::Mutation;

use super::node_rows::TICK_MICROS;
use super::{Kind, Limits, NodeRows};
use crate::access::Permissions;
use crate::error::Result;
use crate::node::{METADATA, Node, PERMISSIONS, PRESENT, STICKY, Server};

impl NodeRows {
    /// Adds or refreshes a server, and removes all others if `replace` is set. Expired
    /// servers are removed too. The node's creator is charged.
    pub async fn mount(
        &self,
        node: &Node,
        server: Server,
        replace: bool,
        limits: Limits,
    ) -> Result<()> {
        let now = self.clock.now();
        let is_other = |old: &&Server| old.address != server.address;
        let is_removed = |old: &&Server| is_other(old) && (replace || old.deadline_micros < now);
        let removed: Vec<_> = node.servers.iter().filter(is_removed).collect();
        let remaining: Vec<_> =
            node.servers.iter().filter(|old| is_other(old) && !is_removed(old)).collect();
        let delta = 1 + count(remaining.len()) - count(node.servers.len());
        self.counters.add(Kind::Servers, &node.creator, delta, limits).await?;
        let mutations = removed.iter().map(|old| old.delete()).chain(server.set()).collect();
        let kept = self.cache.last(&node.name).filter(|(kept, _)| kept.version == node.version);
        let evictions = self.cache.evictions(&node.name);
        let changed = self.change(node, mutations).await;
        if changed.is_err() {
            self.counters.give_back(Kind::Servers, &node.creator, delta).await;
        }
        let after = changed?;
        if let Some((_, at_micros)) = kept {
            let mut servers: Vec<_> = remaining.into_iter().cloned().chain([server]).collect();
            servers.sort_by(|one, other| one.address.cmp(&other.address));
            // The next refresh needs no read. The rest of the row keeps its age, and
            // one eviction was caused by this change.
            self.cache.put(Node { servers, ..after }, at_micros, evictions + 1);
        }
        Ok(())
    }

    /// Removes servers of a node.
    pub async fn unmount<'a>(
        &self,
        node: &Node,
        servers: impl IntoIterator<Item = &'a Server>,
    ) -> Result<()> {
        let deletes: Vec<_> = servers.into_iter().map(Server::delete).collect();
        let removed = count(deletes.len());
        self.change(node, deletes).await?;
        self.counters.give_back(Kind::Servers, &node.creator, removed).await;
        Ok(())
    }

    /// Sets permissions, makes the node sticky, and returns the version of the
    /// permissions.
    pub async fn set_permissions(&self, node: &Node, permissions: &Permissions) -> Result<String> {
        // Timestamps are never reused, so that the version always changes.
        let at = self.clock.now_of_cells().max(node.permissions_micros + TICK_MICROS);
        let mutations = vec![
            Mutation::delete_column(METADATA, PERMISSIONS),
            Mutation::set_at(METADATA, PERMISSIONS, at, permissions.to_json()),
            Mutation::delete_column(METADATA, STICKY),
            Mutation::set(METADATA, STICKY, PRESENT),
        ];
        self.change(node, mutations).await?;
        let set = Node { permissions_micros: at, ..node.clone() };
        Ok(set.permissions_version())
    }
}

fn count(servers: usize) -> i64 {
    i64::try_from(servers).unwrap_or(i64::MAX)
}
