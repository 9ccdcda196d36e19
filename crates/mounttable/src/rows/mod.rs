//! Nodes as rows: read through the `cache`, changed only if nobody else has
//! changed them.
//!
//! Every change of a row checks the version that was read and writes the next
//! one; the single exception is taking a reference out of a parent. Adding a
//! node (`create`) writes the parent's reference first, removing one (`delete`)
//! takes the row first, so whoever dies in between leaves a reference without
//! a row and nothing worse. `adopt` tells how those who do both at the same
//! time leave no row that its parent does not know. `mount` changes servers
//! and permissions; `counters` keep what each user has, and `turns` keep tasks
//! of this process from colliding.

mod adopt;
mod cache;
mod counters;
mod create;
mod delete;
mod mount;
mod turns;

use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable::client::{Client, Filter, Mutation, Query, Row, Table};
use tokio::sync::broadcast;

use self::cache::Cache;
pub use self::cache::CacheOptions;
pub use self::counters::{Counters, Kind, Limits};
pub use self::create::NewChild;
pub use self::turns::Turn;
use self::turns::Turns;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, CREATOR, ID, METADATA, Node, VERSION, Version};
use crate::node_name::NodeName;

/// Changes that a watcher may be behind before it has to look at everything.
const CHANGES_KEPT: usize = 4096;

pub struct NodeRows {
    nodes: Table,
    pub counters: Counters,
    cache: Cache,
    turns: Turns,
    pub clock: Clock,
    /// Names of rows that this process has changed.
    changes: broadcast::Sender<NodeName>,
}

/// The id of the counters table that belongs to a nodes table.
pub fn counters_table(table: &str) -> String {
    format!("{table}-counters")
}

impl NodeRows {
    pub fn new(
        client: &Client,
        table: &str,
        clock: Clock,
        cache: CacheOptions,
    ) -> Result<NodeRows> {
        Ok(NodeRows {
            nodes: client.table(table)?,
            counters: Counters::new(client.table(&counters_table(table))?),
            cache: Cache::new(cache, clock.clone()),
            turns: Turns::default(),
            clock,
            changes: broadcast::channel(CHANGES_KEPT).0,
        })
    }

    /// The node, as it was within the last second.
    pub async fn get(&self, name: &NodeName) -> Result<Option<Arc<Node>>> {
        self.cache.get(name, || self.read(name)).await
    }

    /// The node as this process last knew it, for whoever is about to change
    /// it: if it is another by now, the change fails.
    pub fn last(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.cache.last(name).map(|(node, _)| node)
    }

    /// Waits for a turn to change a node. Those who take turns do not get into
    /// each other's way within this process.
    pub async fn turn(&self, name: &NodeName) -> Turn<'_> {
        self.turns.wait(name).await
    }

    /// The node as it is now.
    pub async fn get_now(&self, name: &NodeName) -> Result<Option<Arc<Node>>> {
        Ok(self.read(name).await?.map(Arc::new))
    }

    async fn read(&self, name: &NodeName) -> Result<Option<Node>> {
        let row = self.nodes.read_row(name.row_key(), Some(Filter::latest())).await?;
        row.as_ref().map(Node::decode).transpose()
    }

    /// Rows read for the cache since the start.
    pub fn cache_reads(&self) -> u64 {
        self.cache.reads()
    }

    /// Many nodes at once, in no order that means anything.
    pub fn read_many<'a>(&self, names: impl IntoIterator<Item = &'a NodeName>) -> Nodes {
        let query = Query::keys(names.into_iter().map(NodeName::row_key));
        Nodes { rows: self.nodes.read_rows(query.filter(Filter::latest())) }
    }

    /// Ids and versions of many nodes, without the rest.
    pub async fn versions<'a>(
        &self,
        names: impl IntoIterator<Item = &'a NodeName>,
    ) -> Result<Vec<(NodeName, String, Version)>> {
        let columns =
            Filter::interleave([Filter::column(METADATA, ID), Filter::column(METADATA, VERSION)]);
        let query = Query::keys(names.into_iter().map(NodeName::row_key));
        let filter = Filter::chain([columns, Filter::latest()]);
        let mut rows = self.nodes.read_rows(query.filter(filter));
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            found.extend(id_and_version(&row));
        }
        Ok(found)
    }

    /// Up to `limit` nodes after the row of that key, in the order of rows.
    pub fn scan_after(&self, key: &[u8], limit: u64) -> Nodes {
        let range = stele_bigtable::client::RowRange::from([key, &[0]].concat());
        let query = Query::range(range).filter(Filter::latest()).limit(limit);
        Nodes { rows: self.nodes.read_rows(query) }
    }

    /// All nodes, in the order of rows.
    pub fn scan(&self) -> Nodes {
        Nodes { rows: self.nodes.read_rows(Query::all().filter(Filter::latest())) }
    }

    /// Tells of rows that this process changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<NodeName> {
        self.changes.subscribe()
    }

    /// Changes a row and its version if it is as it was read.
    pub async fn change(&self, node: &Node, mutations: Vec<Mutation>) -> Result<Version> {
        let next = node.version.next();
        let mutations = mutations.into_iter().chain(next.set());
        self.if_unchanged(node, mutations).await?;
        Ok(next)
    }

    async fn if_unchanged(
        &self,
        node: &Node,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> Result<()> {
        let same = Filter::chain([
            Filter::column(METADATA, VERSION),
            Filter::latest(),
            Filter::value(node.version.to_string().as_bytes()),
        ]);
        let key = node.name.row_key();
        let changed = self.nodes.check_and_mutate(key, Some(same), mutations, []).await;
        self.changed(&node.name);
        match changed? {
            true => Ok(()),
            false => Err(Error::Conflict { name: node.name.to_string() }),
        }
    }

    /// Makes a row unless there is one. Tells whether it did.
    pub async fn insert(&self, node: &Node) -> Result<bool> {
        let exists = Filter::column(METADATA, CREATOR);
        let key = node.name.row_key();
        let existed = self.nodes.check_and_mutate(key, Some(exists), [], node.cells()).await;
        self.changed(&node.name);
        Ok(!existed?)
    }

    /// Takes references out of a parent, whatever else happens to it.
    async fn remove_references(&self, parent: &NodeName, columns: Vec<Bytes>) -> Result<()> {
        let deletes = columns.into_iter().map(|column| Mutation::delete_column(CHILDREN, column));
        let removed = self.nodes.mutate_row(parent.row_key(), deletes).await;
        self.changed(parent);
        Ok(removed?)
    }

    /// Does a row have this column?
    async fn has_column(&self, name: &NodeName, family: &str, column: &[u8]) -> Result<bool> {
        let filter = Filter::chain([Filter::column(family, column), Filter::latest()]);
        Ok(self.nodes.read_row(name.row_key(), Some(filter)).await?.is_some())
    }

    /// What was read before must not be served any more.
    fn changed(&self, name: &NodeName) {
        self.cache.evict(name);
        // Nobody may be watching.
        let _ = self.changes.send(name.clone());
    }
}

fn id_and_version(row: &Row) -> Option<(NodeName, String, Version)> {
    let name = NodeName::from_row_key(&row.key)?;
    let id = String::from_utf8(row.value(METADATA, ID)?.to_vec()).ok()?;
    let version = Version::parse(row.value(METADATA, VERSION)?)?;
    Some((name, id, version))
}

/// Nodes as they are read. A row that is no node is an error of its own, with
/// its key, and the next can be read after it.
pub struct Nodes {
    rows: stele_bigtable::client::Rows,
}

impl Nodes {
    pub async fn next(&mut self) -> Result<Option<Result<Node, (Bytes, Error)>>> {
        let row = self.rows.next().await?;
        Ok(row.map(|row| Node::decode(&row).map_err(|error| (row.key.clone(), error))))
    }
}
