//! Streams the traces of one tile from all shards concurrently. Memory use does not
//! depend on the size of the tile.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable_client::{Filter, Query as RowQuery, Row};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::Store;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::ordered::OrderedParamSet;
use crate::params::Params;
use crate::query::{Plan, Query};
use crate::row_name::{self, Kind};
use crate::tile::{self, Offset, Tile};
use crate::varint;

/// The number of rows in a batch.
const BATCH_ROWS: usize = 64;
const BATCHES_MAX: usize = 32;
/// The maximum number of concurrent reads of one scan.
const READS_MAX: usize = 16;
/// The maximum number of row names in one read.
const KEYS_MAX: usize = 2_000;
/// Rows are read by name if at most one in this many is selected.
const WANTED_SHARE: usize = 4;

/// A trace in one tile: offsets and values, without missing cells. A value is a digest
/// id or the bits of a number.
#[derive(Clone, Debug, PartialEq)]
pub struct TileTrace {
    pub params: Params,
    pub cells: Vec<(Offset, u64)>,
}

struct RawTrace {
    encoded: String,
    cells: Vec<(Offset, u64)>,
}

/// A stream of the traces of a tile. Reading stops when it is dropped.
pub struct Tiles {
    store: Store,
    tile: Tile,
    set: Arc<OrderedParamSet>,
    plan: Option<Plan>,
    receive: mpsc::Receiver<Result<Vec<RawTrace>>>,
    ready: std::vec::IntoIter<RawTrace>,
    /// Whether the set was read again because an id did not decode.
    read_again: bool,
    /// Number of rows whose ids cannot be decoded even then.
    pub skipped: usize,
    _tasks: JoinSet<()>,
}

impl Store {
    /// Reads the offsets `first..=last` of the traces of a tile that match `query`.
    pub async fn scan(
        &self,
        kind: Kind,
        tile: Tile,
        (first, last): (Offset, Offset),
        query: &Query,
    ) -> Result<Tiles> {
        let set = self.read_set(tile).await?.set;
        let (send, receive) = mpsc::channel(BATCHES_MAX);
        let mut tasks = JoinSet::new();
        let plan = query.plan(&set);
        if let Some(plan) = &plan {
            let whole = first == 0 && last + 1 >= self.settings().tile;
            let filter = filter(kind, (!whole).then_some((first, last)));
            // A separate semaphore for each scan, so that a slow consumer does not
            // block other readers.
            let turn = Arc::new(Semaphore::new(READS_MAX));
            for query in self.selection(kind, tile, plan).await? {
                let (store, send, turn) = (self.clone(), send.clone(), turn.clone());
                let reader = ShardReader { store, kind, send, plan: plan.clone() };
                tasks.spawn(reader.run(query.filter(filter.clone()), turn));
            }
        }
        let ready = Vec::new().into_iter();
        let (store, read_again) = (self.clone(), false);
        Ok(Tiles { store, tile, set, plan, receive, ready, read_again, skipped: 0, _tasks: tasks })
    }

    /// Returns the reads for a plan: every shard, or individual rows if they are few.
    async fn selection(&self, kind: Kind, tile: Tile, plan: &Plan) -> Result<Vec<RowQuery>> {
        let shards = 0..self.shards();
        let all = |shard| RowQuery::prefix(row_name::traces(kind, tile, shard));
        if plan.is_all() {
            return Ok(shards.map(all).collect());
        }
        let plan = Arc::new(plan.clone());
        let chosen = self
            .parallel(shards.clone(), |store, shard| {
                let plan = plan.clone();
                async move {
                    let mut ids = store.read_ids(kind, tile, shard).await?;
                    let listed = ids.len();
                    ids.retain(|id| plan.matches(id));
                    Ok((listed, ids))
                }
            })
            .await?;
        let listed: usize = chosen.iter().map(|(listed, _)| listed).sum();
        let wanted: usize = chosen.iter().map(|(_, ids)| ids.len()).sum();
        if wanted * WANTED_SHARE > listed {
            return Ok(shards.map(all).collect());
        }
        let mut keys: Vec<Bytes> = chosen
            .iter()
            .flat_map(|(_, ids)| ids)
            .map(|id| row_name::trace(kind, tile, id, self.shards()).into())
            .collect();
        keys.sort_unstable();
        Ok(keys.chunks(KEYS_MAX).map(|keys| RowQuery::keys(keys.iter().cloned())).collect())
    }

    /// Returns the digests of ids that scans returned.
    pub async fn digests(&self, ids: &[u64]) -> Result<HashMap<u64, Digest>> {
        self.find_digests(ids).await?;
        let known = |id: &u64| Some((*id, self.inner.digests.digest(*id)?));
        Ok(ids.iter().filter_map(known).collect())
    }
}

impl Tiles {
    /// Returns the next trace, in no particular order.
    pub async fn next(&mut self) -> Result<Option<TileTrace>> {
        loop {
            for raw in self.ready.by_ref() {
                match self.set.decode(&raw.encoded) {
                    Ok(params) => return Ok(Some(TileTrace { params, cells: raw.cells })),
                    Err(_) if !self.read_again => {
                        // A put may have been stored after the set was read.
                        self.read_again = true;
                        self.set = self.store.read_set(self.tile).await?.set;
                        match self.set.decode(&raw.encoded) {
                            Ok(params) => {
                                return Ok(Some(TileTrace { params, cells: raw.cells }));
                            }
                            Err(_) => self.skipped += 1,
                        }
                    }
                    Err(_) => self.skipped += 1,
                }
            }
            if self.plan.is_none() {
                return Ok(None);
            }
            match self.receive.recv().await {
                Some(batch) => self.ready = batch?.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

struct ShardReader {
    store: Store,
    kind: Kind,
    plan: Plan,
    send: mpsc::Sender<Result<Vec<RawTrace>>>,
}

impl ShardReader {
    async fn run(self, query: RowQuery, turn: Arc<Semaphore>) {
        let permit = turn.acquire_owned().await;
        if let Err(error) = self.read(query).await {
            // An error means that the scan was dropped.
            let _ = self.send.send(Err(error)).await;
        }
        drop(permit);
    }

    async fn read(&self, query: RowQuery) -> Result<()> {
        let mut rows = self.store.table().read_rows(query);
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        while let Some(row) = rows.next().await? {
            let trace = raw_trace(self.kind, &row, self.store.settings().tile)?;
            if self.plan.matches(&trace.encoded) {
                batch.push(trace);
            }
            if batch.len() >= BATCH_ROWS {
                let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_ROWS));
                if self.send.send(Ok(full)).await.is_err() {
                    return Ok(());
                }
            }
        }
        let _ = self.send.send(Ok(batch)).await;
        Ok(())
    }
}

/// Returns a filter for the cells of traces, of some offsets or all of them.
pub(super) fn filter(kind: Kind, offsets: Option<(Offset, Offset)>) -> Filter {
    let columns = match offsets {
        None => Filter::family(kind.family()),
        Some((first, last)) => Filter::columns(
            kind.family(),
            Bound::Included(tile::column(first).into()),
            Bound::Included(tile::column(last).into()),
        ),
    };
    Filter::chain([columns, Filter::latest()])
}

fn raw_trace(kind: Kind, row: &Row, tile_commits: u16) -> Result<RawTrace> {
    let encoded = row_name::subkey_text(&row.key)
        .ok_or_else(|| Error::damaged(&row.key, "its name is not valid UTF-8"))?;
    Ok(RawTrace { encoded, cells: cells(kind, row, tile_commits)? })
}

/// Returns the cells of a trace's row, without missing ones.
pub(super) fn cells(kind: Kind, row: &Row, tile_commits: u16) -> Result<Vec<(Offset, u64)>> {
    let mut cells = Vec::with_capacity(row.cells.len());
    for cell in row.family(kind.family()) {
        let offset = tile::offset(&cell.qualifier, tile_commits).ok_or_else(|| {
            Error::damaged(
                &row.key,
                "a column is not an offset: the table may have been written with another tile size",
            )
        })?;
        if cell.value.is_empty() {
            continue;
        }
        let value = match kind {
            Kind::Digests => varint::whole(&cell.value).filter(|id| *id != 0),
            Kind::Numbers => cell.value.as_ref().try_into().ok().map(u64::from_le_bytes),
        };
        let value = value.ok_or_else(|| Error::damaged(&row.key, "a value cannot be decoded"))?;
        cells.push((offset, value));
    }
    Ok(cells)
}
