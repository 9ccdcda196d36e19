//! The ordered param set of a tile: read from its row and verified, and extended under
//! an optimistic lock on its hash.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable_client::{Filter, Mutation, Query, Row};

use super::commits::latest_of;
use super::parallel::{ATTEMPTS_MAX, pause};
use super::{Store, now_micros};
use crate::error::{Error, Result};
use crate::ordered::OrderedParamSet;
use crate::param_set::ParamSet;
use crate::params::Params;
use crate::row_name;
use crate::tile::Tile;

const FAMILY: &str = "O";
const SET: &[u8] = b"OPS";
const HASH: &[u8] = b"H";
/// The maximum number of tiles whose sets are cached by writers.
const CACHED_MAX: usize = 64;

pub type Cache = HashMap<Tile, StoredSet>;

/// A set as it was last read or written, and the version of its row.
#[derive(Clone)]
pub struct StoredSet {
    pub set: Arc<OrderedParamSet>,
    /// The hash and its cell's timestamp; `None` if the row does not exist.
    version: Option<(Bytes, i64)>,
}

impl Store {
    /// Returns the current set of a tile; an empty one if the tile is empty.
    pub(super) async fn read_set(&self, tile: Tile) -> Result<StoredSet> {
        let row = self.table().read_row(row_name::param_set(tile), Some(latest_of(FAMILY))).await?;
        let Some(row) = row else {
            return Ok(StoredSet { set: Arc::default(), version: None });
        };
        let (bytes, version) = checked(&row)?;
        let set =
            OrderedParamSet::from_bytes(&bytes).map_err(|what| Error::damaged(&row.key, what))?;
        Ok(StoredSet { set: set.into(), version: Some(version) })
    }

    /// Returns the bytes of the sets of all tiles, the newest first.
    pub(super) async fn read_all_sets(&self) -> Result<Vec<(Tile, Bytes)>> {
        let mut rows =
            self.table().read_rows(Query::prefix(row_name::PARAM_SETS).filter(latest_of(FAMILY)));
        let mut sets = Vec::new();
        while let Some(row) = rows.next().await? {
            let tile = row_name::tile(&row.key)
                .ok_or_else(|| Error::damaged(&row.key, "its name contains no tile"))?;
            sets.push((tile, checked(&row)?.0));
        }
        Ok(sets)
    }

    /// Returns a set of the tile that contains all of these params. Missing pairs are
    /// stored before this returns.
    pub(super) async fn ensure_params(
        &self,
        tile: Tile,
        params: &[&Params],
    ) -> Result<Arc<OrderedParamSet>> {
        for attempt in 0..ATTEMPTS_MAX {
            let cached = self.inner.sets.lock().get(&tile).cloned();
            let stored = match cached {
                Some(stored) => stored,
                None => {
                    let stored = self.read_set(tile).await?;
                    self.remember(tile, stored.clone());
                    stored
                }
            };
            let mut missing = ParamSet::default();
            params.iter().for_each(|params| stored.set.note_missing(params, &mut missing));
            if missing.is_empty() {
                return Ok(stored.set);
            }
            let extended = Arc::new(stored.set.extended(&missing)?);
            match self.replace(tile, &stored, extended).await {
                Ok(Some(stored)) => {
                    let set = stored.set.clone();
                    self.remember(tile, stored);
                    return Ok(set);
                }
                Ok(None) => drop(self.inner.sets.lock().remove(&tile)),
                // The write may have succeeded anyway: read the row again.
                Err(Error::Rows(error)) if error.is_retryable() && attempt + 1 < ATTEMPTS_MAX => {
                    self.inner.sets.lock().remove(&tile);
                }
                Err(error) => return Err(error),
            }
            pause(attempt).await;
        }
        Err(Error::Conflict(format!(
            "the param set of tile {} was changed concurrently {ATTEMPTS_MAX} times",
            tile.number()
        )))
    }

    /// Writes a set if the stored one is still the one that was read.
    async fn replace(
        &self,
        tile: Tile,
        before: &StoredSet,
        set: Arc<OrderedParamSet>,
    ) -> Result<Option<StoredSet>> {
        let bytes = set.to_bytes();
        let hash = Bytes::from(OrderedParamSet::hash(&bytes));
        // Later than the stored cell, whatever the local clock.
        let after = before.version.as_ref().map_or(0, |(_, time)| time.saturating_add(1000));
        let time = now_micros().max(after);
        let write = [
            Mutation::set_at(FAMILY, SET, time, bytes),
            Mutation::set_at(FAMILY, HASH, time, hash.clone()),
        ];
        let row = row_name::param_set(tile);
        let written = match &before.version {
            Some((hash, _)) => {
                let unchanged = Filter::chain([
                    Filter::column(FAMILY, HASH),
                    Filter::latest(),
                    Filter::value(hash),
                ]);
                self.table().check_and_mutate(row, Some(unchanged), write, []).await?
            }
            None => {
                let existing = Filter::column(FAMILY, HASH);
                !self.table().check_and_mutate(row, Some(existing), [], write).await?
            }
        };
        Ok(written.then(|| StoredSet { set, version: Some((hash, time)) }))
    }

    fn remember(&self, tile: Tile, stored: StoredSet) {
        let mut sets = self.inner.sets.lock();
        if sets.len() >= CACHED_MAX {
            sets.clear();
        }
        sets.insert(tile, stored);
    }
}

/// Returns the bytes of a set after checking them against the stored hash.
fn checked(row: &Row) -> Result<(Bytes, (Bytes, i64))> {
    let bytes = row.value(FAMILY, SET);
    let hash = row.latest(FAMILY, HASH);
    let (Some(bytes), Some(hash)) = (bytes, hash) else {
        return Err(Error::damaged(&row.key, "the set or its hash is missing"));
    };
    if hash.value != OrderedParamSet::hash(bytes) {
        return Err(Error::damaged(&row.key, "hash mismatch"));
    }
    Ok((bytes.clone(), (hash.value.clone(), hash.timestamp_micros)))
}
