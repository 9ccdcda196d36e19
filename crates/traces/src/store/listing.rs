//! Lists the contents of a tile without reading its traces: the commits that have data,
//! and the ids of all traces. Both are written before the cells, so they may contain
//! too much, but never too little.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use bytes::Bytes;
use stele_bigtable_client::{Filter, Mutation, Query, RowEntry};

use super::Store;
use crate::error::{Error, Result};
use crate::row_name::{self, Kind};
use crate::tile::{self, CommitIndex, Offset, Tile};

const MARKS: &str = "M";
const IDS: &str = "X";
/// The maximum number of columns in one row mutation; the API allows 100,000.
const COLUMNS_MAX: usize = 10_000;

/// The commits that this process has marked already.
pub type Marked = HashSet<(Tile, Offset)>;

impl Store {
    /// Marks commits of a tile as having data.
    pub(super) async fn mark(
        &self,
        tile: Tile,
        offsets: impl IntoIterator<Item = Offset>,
    ) -> Result<()> {
        let mut offsets: Vec<_> = offsets.into_iter().collect();
        {
            let marked = self.inner.marked.lock();
            offsets.retain(|offset| !marked.contains(&(tile, *offset)));
        }
        if offsets.is_empty() {
            return Ok(());
        }
        let set = |offset: &Offset| Mutation::set_at(MARKS, tile::column(*offset), 0, "");
        self.table().mutate_row(row_name::marks(tile), offsets.iter().map(set)).await?;
        self.inner.marked.lock().extend(offsets.into_iter().map(|offset| (tile, offset)));
        Ok(())
    }

    /// Adds ids to the list of a tile.
    pub(super) async fn list_ids(&self, tile: Tile, ids: &[(Kind, String)]) -> Result<()> {
        let mut shards: BTreeMap<u8, Vec<String>> = BTreeMap::new();
        for (kind, id) in ids {
            let shard = row_name::shard(id.as_bytes(), self.shards());
            shards.entry(shard).or_default().push(column(*kind, id));
        }
        let mut parts = Vec::new();
        for (shard, mut columns) in shards {
            columns.sort_unstable();
            for columns in columns.chunks(COLUMNS_MAX) {
                let mut row = RowEntry::new(row_name::listing(tile, shard));
                columns.iter().for_each(|column| row.set_at(IDS, column.as_bytes(), 0, b""));
                parts.push(vec![row]);
            }
        }
        self.write_parts(parts).await
    }

    /// Returns the ids of one shard of a tile.
    pub(super) async fn read_ids(&self, kind: Kind, tile: Tile, shard: u8) -> Result<Vec<String>> {
        let letter = Bytes::from(kind.letter().to_string());
        let after = Bytes::from(vec![kind.letter() as u8 + 1]);
        let filter = Filter::chain([
            Filter::columns(IDS, Bound::Included(letter), Bound::Excluded(after)),
            Filter::latest(),
        ]);
        let key = row_name::listing(tile, shard);
        let Some(row) = self.table().read_row(key, Some(filter)).await? else {
            return Ok(Vec::new());
        };
        let ids = row.cells.iter().map(|cell| {
            String::from_utf8(cell.qualifier[1..].to_vec())
                .map_err(|_| Error::damaged(&row.key, "an id is not valid UTF-8"))
        });
        ids.collect()
    }

    /// Returns commits that may have data, the newest first: at most `count` of those
    /// up to `last`.
    pub(super) async fn marked(&self, last: CommitIndex, count: usize) -> Result<Vec<CommitIndex>> {
        let (newest, _) = self.tile_of(last);
        let start = Bytes::from(row_name::marks(newest));
        let end = stele_bigtable_client::RowRange::prefix(row_name::MARKS).end;
        let range = stele_bigtable_client::RowRange { start, end };
        let filter = Filter::chain([Filter::family(MARKS), Filter::latest()]);
        let mut rows = self.table().read_rows(Query::range(range).filter(filter));
        let mut marked = Vec::new();
        while marked.len() < count {
            let Some(row) = rows.next().await? else { break };
            let wrong = || Error::damaged(&row.key, "a mark or its tile cannot be decoded");
            let tile = row_name::tile(&row.key).ok_or_else(wrong)?;
            for cell in row.cells.iter().rev() {
                let offset = tile::offset(&cell.qualifier, self.settings().tile);
                let index = tile.commit(offset.ok_or_else(wrong)?, self.settings().tile);
                if index <= last {
                    marked.push(index);
                }
            }
        }
        marked.truncate(count);
        Ok(marked)
    }
}

fn column(kind: Kind, id: &str) -> String {
    format!("{}{id}", kind.letter())
}
