//! One trace over all tiles: its id is looked up in each tile's set, then all its rows
//! are read at once.

use std::collections::HashMap;

use stele_bigtable_client::Query as RowQuery;
use stele_grpc::Pending;

use super::Store;
use super::scan::{cells, filter};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::ordered::encode_in;
use crate::params::Params;
use crate::row_name::{self, Kind};
use crate::tile::CommitIndex;

/// A trace from its first result to its last, without the commits that have no result.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct History {
    pub options: Params,
    pub digests: Vec<(CommitIndex, Digest)>,
    pub numbers: Vec<(CommitIndex, f64)>,
}

impl Store {
    /// Returns `None` if no tile has the trace.
    pub fn history<'a>(&'a self, params: &'a Params) -> Pending<'a, Result<Option<History>>> {
        Box::pin(async move {
            if params.is_empty() {
                return Err(Error::invalid("a trace id needs at least one key"));
            }
            let mut encoded = Vec::new();
            for (tile, bytes) in self.read_all_sets().await? {
                let id = encode_in(&bytes, params)
                    .map_err(|what| Error::Damaged { row: row_name::param_set(tile), what })?;
                encoded.extend(id.map(|id| (tile, id)));
            }
            let digests = self.cells_of(Kind::Digests, &encoded).await?;
            let ids: Vec<u64> = digests.iter().map(|(_, id)| *id).collect();
            let known: HashMap<u64, Digest> = self.digests(&ids).await?;
            let digests =
                digests.into_iter().filter_map(|(index, id)| Some((index, *known.get(&id)?)));
            let numbers = self.cells_of(Kind::Numbers, &encoded).await?;
            let numbers = numbers.into_iter().map(|(index, bits)| (index, f64::from_bits(bits)));
            let mut history = History {
                digests: digests.collect(),
                numbers: numbers.collect(),
                options: Params::default(),
            };
            if history.digests.is_empty() && history.numbers.is_empty() {
                return Ok(None);
            }
            // The options of the newest tile that has any.
            for (tile, id) in &encoded {
                if let Some(options) = self.read_options(*tile, id).await? {
                    history.options = options;
                    break;
                }
            }
            Ok(Some(history))
        })
    }

    /// Returns the cells of one trace in these tiles, in the order of commits.
    async fn cells_of(
        &self,
        kind: Kind,
        encoded: &[(crate::Tile, String)],
    ) -> Result<Vec<(CommitIndex, u64)>> {
        let keys = encoded.iter().map(|(tile, id)| row_name::trace(kind, *tile, id, self.shards()));
        let mut rows = self.table().read_rows(RowQuery::keys(keys).filter(filter(kind, None)));
        let size = self.settings().tile;
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            let tile = row_name::tile(&row.key)
                .ok_or_else(|| Error::damaged(&row.key, "its name contains no tile"))?;
            let cells = cells(kind, &row, size)?;
            found.extend(cells.into_iter().map(|(at, value)| (tile.commit(at, size), value)));
        }
        found.sort_unstable_by_key(|(index, _)| *index);
        Ok(found)
    }
}
