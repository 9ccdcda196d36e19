//! Changing what a node holds: its servers, its permissions.

use stele_bigtable::client::Mutation;

use super::{Kind, Limits, NodeRows};
use crate::access::Permissions;
use crate::error::Result;
use crate::node::{METADATA, Node, PERMISSIONS, PRESENT, STICKY, Server};

/// Permissions are never set twice at the same time, so that their version
/// always changes.
const TICK_MICROS: i64 = 1000;

impl NodeRows {
    /// Adds or refreshes a server, in place of all others if so asked. Those
    /// that have expired go too. The node's creator is charged.
    pub async fn mount(
        &self,
        node: &Node,
        server: Server,
        replace: bool,
        limits: Limits,
    ) -> Result<()> {
        let now = self.clock.now();
        let goes =
            |old: &&Server| replace || old.deadline_micros < now || old.address == server.address;
        let gone: Vec<_> = node.servers.iter().filter(goes).collect();
        let delta = 1 - i64::try_from(gone.len()).unwrap_or(i64::MAX);
        self.counters.add(Kind::Servers, &node.creator, delta, limits).await?;
        let mutations = gone.iter().map(|old| old.delete()).chain(server.set()).collect();
        let changed = self.change(node, mutations).await;
        if changed.is_err() {
            self.counters.give_back(Kind::Servers, &node.creator, delta).await;
        }
        changed.map(drop)
    }

    /// Removes servers of a node.
    pub async fn unmount<'a>(
        &self,
        node: &Node,
        servers: impl IntoIterator<Item = &'a Server>,
    ) -> Result<()> {
        let deletes: Vec<_> = servers.into_iter().map(Server::delete).collect();
        let count = i64::try_from(deletes.len()).unwrap_or(i64::MAX);
        self.change(node, deletes).await?;
        self.counters.give_back(Kind::Servers, &node.creator, count).await;
        Ok(())
    }

    /// Sets permissions and makes the node stay. Returns their version.
    pub async fn set_permissions(&self, node: &Node, permissions: &Permissions) -> Result<String> {
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
