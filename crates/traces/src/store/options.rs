//! Options of traces: properties that are not part of a trace's identity. A tile has
//! one row of them for each trace; those of the newest tile apply.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable_client::{Filter, Query as RowQuery, Row, RowEntry};
use stele_grpc::Pending;

use super::Store;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::row_name;
use crate::tile::{CommitIndex, Tile};

const FAMILY: &str = "P";
const COLUMN: &[u8] = b"B";
/// The maximum number of rows that are read by name; more are read shard by shard.
const BY_NAME_MAX: usize = 1_000;

/// The params of each encoded id of a tile.
type Wanted<'p> = HashMap<String, &'p Params>;

impl Store {
    /// Returns the row that sets the options of an encoded id at the time of their
    /// commit.
    pub(super) fn options_row(
        &self,
        tile: Tile,
        encoded: &str,
        micros: i64,
        options: &Params,
    ) -> RowEntry {
        let mut row = RowEntry::new(row_name::options(tile, encoded, self.shards()));
        row.set_at(FAMILY, COLUMN, micros, options.id().as_bytes());
        row
    }

    /// Returns the options of a trace in one tile.
    pub(super) async fn read_options(&self, tile: Tile, encoded: &str) -> Result<Option<Params>> {
        let key = row_name::options(tile, encoded, self.shards());
        let row = self.table().read_row(key, Some(filter())).await?;
        let text = row.as_ref().and_then(text);
        text.map(|(_, text)| parsed(encoded, &text)).transpose()
    }

    /// Returns the options of those of these traces that have any, from the newest tile
    /// of these commits.
    pub fn options<'a>(
        &'a self,
        traces: &'a [Params],
        commits: &'a [CommitIndex],
    ) -> Pending<'a, Result<HashMap<Params, Params>>> {
        Box::pin(async move {
            let tiles: BTreeSet<Tile> =
                commits.iter().map(|index| self.tile_of(*index).0).collect();
            let mut found: HashMap<Params, Params> = HashMap::new();
            // Many traces have the same options.
            let mut known: HashMap<Bytes, Params> = HashMap::new();
            for tile in tiles.into_iter().rev() {
                let set = self.read_set(tile).await?.set;
                let open = traces.iter().filter(|params| !found.contains_key(*params));
                let wanted: Wanted =
                    open.filter_map(|params| Some((set.encode(params).ok()?, params))).collect();
                if wanted.is_empty() {
                    continue;
                }
                for (encoded, text) in self.option_texts(tile, &wanted).await? {
                    let Some(params) = wanted.get(&encoded) else { continue };
                    let options = match known.get(&text) {
                        Some(options) => options.clone(),
                        None => {
                            let options = parsed(&encoded, &text)?;
                            known.insert(text, options.clone());
                            options
                        }
                    };
                    found.insert((*params).clone(), options);
                }
            }
            Ok(found)
        })
    }

    /// Returns encoded ids of a tile and the text of their options.
    async fn option_texts(&self, tile: Tile, wanted: &Wanted<'_>) -> Result<Vec<(String, Bytes)>> {
        let queries: Vec<RowQuery> = if wanted.len() > BY_NAME_MAX {
            let prefix = |shard| RowQuery::prefix(row_name::all_options(tile, shard));
            (0..self.shards()).map(prefix).collect()
        } else {
            let names = wanted.keys().map(|id| row_name::options(tile, id, self.shards()));
            vec![RowQuery::keys(names)]
        };
        let ids: Arc<std::collections::HashSet<String>> =
            Arc::new(wanted.keys().cloned().collect());
        let texts = self.parallel(queries, |store, query| {
            let ids = ids.clone();
            async move {
                let mut rows = store.table().read_rows(query.filter(filter()));
                let mut texts = Vec::new();
                while let Some(row) = rows.next().await? {
                    texts.extend(text(&row).filter(|(id, _)| ids.contains(id)));
                }
                Ok(texts)
            }
        });
        Ok(texts.await?.into_iter().flatten().collect())
    }
}

fn filter() -> Filter {
    Filter::chain([Filter::column(FAMILY, COLUMN), Filter::latest()])
}

fn text(row: &Row) -> Option<(String, Bytes)> {
    Some((row_name::subkey_text(&row.key)?, row.value(FAMILY, COLUMN)?.clone()))
}

fn parsed(encoded: &str, text: &[u8]) -> Result<Params> {
    Params::parse(&String::from_utf8_lossy(text)).map_err(|error| Error::Damaged {
        row: format!("the options of {encoded}"),
        what: error.to_string(),
    })
}
