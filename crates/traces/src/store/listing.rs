//! What a tile holds, told without reading its traces: the commits that have
//! data, and the ids of all traces. Both are written before the cells, so they
//! may tell of more than there is, never of less.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use bytes::Bytes;
use stele_bigtable::client::{Filter, Mutation, Query, RowMutations};

use super::Store;
use super::put::written;
use crate::error::{Error, Result};
use crate::row_name::{self, Kind};
use crate::tile::{self, CommitIndex, Offset, Tile};

const MARKS: &str = "M";
const IDS: &str = "X";
/// Columns in one row mutation; the API takes 100,000.
const COLUMNS_MAX: usize = 10_000;
/// Ids that are remembered as listed.
const REMEMBERED_MAX: usize = 2_000_000;

/// What this process has listed already.
#[derive(Default)]
pub struct Listed {
    marks: HashSet<(Tile, Offset)>,
    ids: HashMap<Tile, HashSet<(Kind, String)>>,
    count: usize,
}

impl Store {
    /// Marks commits of a tile as having data.
    pub(super) async fn mark(
        &self,
        tile: Tile,
        offsets: impl IntoIterator<Item = Offset>,
    ) -> Result<()> {
        let mut offsets: Vec<_> = offsets.into_iter().collect();
        {
            let listed = self.inner.listed.lock();
            offsets.retain(|offset| !listed.marks.contains(&(tile, *offset)));
        }
        if offsets.is_empty() {
            return Ok(());
        }
        let set = |offset: &Offset| Mutation::set_at(MARKS, tile::column(*offset), 0, "");
        self.table().mutate_row(row_name::marks(tile), offsets.iter().map(set)).await?;
        let marks = offsets.into_iter().map(|offset| (tile, offset));
        self.inner.listed.lock().marks.extend(marks);
        Ok(())
    }

    /// Lists ids of a tile.
    pub(super) async fn list_ids<'i>(
        &self,
        tile: Tile,
        ids: impl Iterator<Item = (Kind, &'i str)>,
    ) -> Result<()> {
        let mut new: BTreeMap<u8, Vec<(Kind, String)>> = BTreeMap::new();
        {
            let listed = self.inner.listed.lock();
            let known = listed.ids.get(&tile);
            for (kind, id) in ids {
                let pair = (kind, id.to_string());
                if known.is_none_or(|known| !known.contains(&pair)) {
                    let shard = row_name::shard(id.as_bytes(), self.shards());
                    new.entry(shard).or_default().push(pair);
                }
            }
        }
        let rows = new.iter().flat_map(|(shard, ids)| {
            ids.chunks(COLUMNS_MAX).map(|ids| {
                let columns = ids.iter().map(|(kind, id)| column(*kind, id));
                let cells = columns.map(|column| Mutation::set_at(IDS, column, 0, ""));
                RowMutations::new(row_name::listing(tile, *shard), cells)
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = rows.iter().map(|row| row.key.clone()).collect();
        written(&keys, self.table().mutate_rows(rows).await)?;
        self.remember_listed(tile, new);
        Ok(())
    }

    fn remember_listed(&self, tile: Tile, new: BTreeMap<u8, Vec<(Kind, String)>>) {
        let mut listed = self.inner.listed.lock();
        let more: usize = new.values().map(Vec::len).sum();
        if listed.count + more > REMEMBERED_MAX {
            listed.ids.clear();
            listed.count = 0;
        }
        listed.count += more;
        listed.ids.entry(tile).or_default().extend(new.into_values().flatten());
    }

    /// The ids of one shard of a tile.
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
                .map_err(|_| Error::damaged(&row.key, "an id is not text"))
        });
        ids.collect()
    }

    /// Commits that have data, or may have, the newest first: at most `count`
    /// of those up to `last`.
    pub(super) async fn marked(&self, last: CommitIndex, count: usize) -> Result<Vec<CommitIndex>> {
        let (newest, _) = self.tile_of(last);
        let start = Bytes::from(row_name::marks(newest));
        let end = stele_bigtable::client::RowRange::prefix(row_name::MARKS).end;
        let range = stele_bigtable::client::RowRange { start, end };
        let filter = Filter::chain([Filter::family(MARKS), Filter::latest()]);
        let mut rows = self.table().read_rows(Query::range(range).filter(filter));
        let mut marked = Vec::new();
        while marked.len() < count {
            let Some(row) = rows.next().await? else { break };
            let wrong = || Error::damaged(&row.key, "a mark or its tile cannot be read");
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
