//! The rows of nodes: reads, and changes that check the version of a row.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable_client::{Client, Filter, Mutation, Query, Row, RowRange, Table};
use tokio::sync::broadcast;

use super::adopt::ReferencedRows;
use super::cache::{Cache, CacheOptions};
use super::counters::Counters;
use super::decoded::{Branches, Decode, Decoded};
use super::listing::Listings;
use super::turns::{Turn, Turns};
use crate::access::PermissionsPool;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::node::{Branch, CHILDREN, CREATOR, ID, METADATA, Node, SERVERS, VERSION, Version};
use crate::node_name::NodeName;

/// The smallest difference between timestamps of cells.
pub(super) const TICK_MICROS: i64 = 1000;

/// The number of changes that a watcher may lag behind before it has to read everything
/// again.
const CHANGES_KEPT: usize = 4096;

pub struct NodeRows {
    pub(super) nodes: Table,
    pub counters: Counters,
    pub(super) cache: Cache,
    pub(super) referenced: ReferencedRows,
    pub(super) listings: Listings,
    pub(super) permissions: Arc<PermissionsPool>,
    turns: Turns,
    pub clock: Clock,
    /// Names of rows that this process has changed.
    changes: broadcast::Sender<NodeName>,
}

/// Returns the id of the counters table that belongs to a nodes table.
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
            referenced: ReferencedRows::default(),
            listings: Listings::default(),
            permissions: Arc::default(),
            turns: Turns::default(),
            clock,
            changes: broadcast::channel(CHANGES_KEPT).0,
        })
    }

    /// Returns the node as it was within the last second.
    pub async fn get(&self, name: &NodeName) -> Result<Option<Arc<Node>>> {
        self.cache.get(name, || self.read(name)).await
    }

    /// Returns the node as this process last knew it, for an operation that will change
    /// it: if the node has changed since, the change fails.
    pub fn last(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.cache.last(name).map(|(node, _)| node)
    }

    /// Waits for a turn to change a node. Tasks of this process that take turns do not
    /// conflict with each other.
    pub async fn turn(&self, name: &NodeName) -> Turn<'_> {
        self.turns.wait(name).await
    }

    /// Reads the current node.
    pub async fn get_now(&self, name: &NodeName) -> Result<Option<Arc<Node>>> {
        Ok(self.read(name).await?.map(Arc::new))
    }

    async fn read(&self, name: &NodeName) -> Result<Option<Node>> {
        let row = self.nodes.read_row(name.row_key(), Some(without_children())).await?;
        row.map(|row| Node::decode(&row, &self.permissions)).transpose()
    }

    /// Reads the current node with all its children.
    pub async fn get_branch(&self, name: &NodeName) -> Result<Option<Branch>> {
        let row = self.nodes.read_row(name.row_key(), Some(Filter::latest())).await?;
        row.map(|row| Branch::decode(&row, &self.permissions)).transpose()
    }

    /// Returns whether the node has children, or had some a short time ago.
    pub async fn has_children(&self, name: &NodeName) -> Result<bool> {
        self.cache.has_children(name, || self.has_children_now(name)).await
    }

    pub async fn has_children_now(&self, name: &NodeName) -> Result<bool> {
        Ok(!self.references_after(name, None, 1).await?.is_empty())
    }

    /// Returns up to `limit` columns of references to children after the given one.
    pub async fn references_after(
        &self,
        name: &NodeName,
        column: Option<&Bytes>,
        limit: usize,
    ) -> Result<Vec<Bytes>> {
        let first = column.map_or(Bound::Unbounded, |column| Bound::Excluded(column.clone()));
        let filter = Filter::chain([
            Filter::columns(CHILDREN, first, Bound::Unbounded),
            Filter::latest(),
            Filter::cells_per_row(i32::try_from(limit).unwrap_or(i32::MAX)),
        ]);
        let row = self.nodes.read_row(name.row_key(), Some(filter)).await?;
        let cells = row.into_iter().flat_map(|row| row.cells);
        Ok(cells.map(|cell| cell.qualifier).collect())
    }

    /// Returns the number of rows read for the cache since the start.
    pub fn cache_reads(&self) -> u64 {
        self.cache.reads()
    }

    /// Reads many nodes with all their children.
    pub fn read_branches<'a>(&self, names: impl IntoIterator<Item = &'a NodeName>) -> Branches {
        let query = Query::keys(names.into_iter().map(NodeName::row_key));
        self.decoded(query.filter(Filter::latest()), Branch::decode)
    }

    /// Reads many nodes, each with its first children in the order of their columns.
    pub fn read_beginnings<'a>(
        &self,
        names: impl IntoIterator<Item = &'a NodeName>,
        children: usize,
    ) -> Branches {
        let first = Filter::chain([
            Filter::family(CHILDREN),
            Filter::latest(),
            Filter::cells_per_row(i32::try_from(children).unwrap_or(i32::MAX)),
        ]);
        let query = Query::keys(names.into_iter().map(NodeName::row_key));
        let filter = Filter::interleave([without_children(), first]);
        self.decoded(query.filter(filter), Branch::decode)
    }

    fn decoded<T>(&self, query: Query, decode: Decode<T>) -> Decoded<T> {
        let (rows, permissions) = (self.nodes.read_rows(query), self.permissions.clone());
        Decoded { rows, permissions, decode }
    }

    /// Reads only the ids and versions of many nodes.
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

    /// Reads up to `limit` nodes after the row with that key, in the order of rows.
    pub fn scan_after(&self, key: &[u8], limit: u64) -> Decoded<Node> {
        let range = RowRange::from([key, &[0]].concat());
        let query = Query::range(range).filter(without_children()).limit(limit);
        self.decoded(query, Node::decode)
    }

    /// Reads all nodes with their children, in the order of rows.
    pub fn scan(&self) -> Branches {
        self.decoded(Query::all().filter(Filter::latest()), Branch::decode)
    }

    /// Returns a receiver of the names of rows that this process changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<NodeName> {
        self.changes.subscribe()
    }

    /// Changes a row and its version if the version is unchanged. Returns the node with
    /// the new version.
    pub async fn change(&self, node: &Node, mutations: Vec<Mutation>) -> Result<Node> {
        let version = node.version.next();
        let version_micros = self.clock.now_of_cells().max(node.version_micros + TICK_MICROS);
        let mutations = mutations.into_iter().chain([version.set_at(version_micros)]);
        self.if_unchanged(node, mutations).await?;
        Ok(Node { version, version_micros, ..node.clone() })
    }

    pub(super) async fn if_unchanged(
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

    /// Inserts a row if it does not exist. Returns whether it did.
    pub async fn insert(&self, node: &Node) -> Result<bool> {
        let exists = Filter::column(METADATA, CREATOR);
        let key = node.name.row_key();
        let existed = self.nodes.check_and_mutate(key, Some(exists), [], node.cells()).await;
        self.changed(&node.name);
        Ok(!existed?)
    }

    /// Removes references from a parent, regardless of its version.
    pub(super) async fn remove_references(
        &self,
        parent: &NodeName,
        columns: Vec<Bytes>,
    ) -> Result<()> {
        let delete = |column: &Bytes| Mutation::delete_column(CHILDREN, column.clone());
        let removed = self.nodes.mutate_row(parent.row_key(), columns.iter().map(delete)).await;
        self.changed(parent);
        removed?;
        columns.iter().for_each(|column| self.listings.removed(parent, column));
        Ok(())
    }

    /// Returns whether a row has this column.
    pub(super) async fn has_column(
        &self,
        name: &NodeName,
        family: &str,
        column: &[u8],
    ) -> Result<bool> {
        let filter = Filter::chain([Filter::column(family, column), Filter::latest()]);
        Ok(self.nodes.read_row(name.row_key(), Some(filter)).await?.is_some())
    }

    /// Evicts a changed row from the cache and notifies watchers.
    fn changed(&self, name: &NodeName) {
        self.cache.evict(name);
        // An error means that there are no watchers.
        let _ = self.changes.send(name.clone());
    }
}

fn id_and_version(row: &Row) -> Option<(NodeName, String, Version)> {
    let name = NodeName::from_row_key(&row.key)?;
    let id = String::from_utf8(row.value(METADATA, ID)?.to_vec()).ok()?;
    let version = Version::parse(row.value(METADATA, VERSION)?)?;
    Some((name, id, version))
}

/// Returns a filter for the newest cells of a node without the references to its
/// children.
fn without_children() -> Filter {
    let families = Filter::family_regex(format!("{METADATA}|{SERVERS}"));
    Filter::chain([families, Filter::latest()])
}
