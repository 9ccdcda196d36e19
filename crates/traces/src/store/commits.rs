//! Reads registered commits: the index, author and time of a hash. The index of a
//! registered commit never changes, so a server without a repository can serve all
//! reads. `registration` writes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_bigtable_client::{Filter, Query, Row, RowRange};
use stele_grpc::Pending;

use super::Store;
use crate::error::{Error, Result};
use crate::row_name;
use crate::tile::{self, CommitIndex, Offset, Tile};

pub(super) const FAMILY: &str = "C";
pub(super) const INDEX: &[u8] = b"i";
const TEXT_BYTES_MAX: usize = 1024;
/// The maximum number of hashes whose commits are cached.
const REMEMBERED_MAX: usize = 100_000;
/// The largest index of a commit.
pub(super) const INDEX_MAX: CommitIndex = CommitIndex(i32::MAX as u32);
/// The maximum number of commits in one request.
pub const COMMITS_MAX: usize = 100_000;

/// A registered commit and its index.
pub type IndexedCommit = (CommitIndex, Arc<Commit>);

pub type Found = HashMap<String, IndexedCommit>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// 7 to 64 hex digits.
    pub hash: String,
    #[serde(default)]
    pub author: String,
    /// Seconds since 1970.
    #[serde(default)]
    pub time: i64,
    #[serde(default)]
    pub subject: String,
}

impl Commit {
    pub(super) fn check(&self) -> Result<()> {
        check_hash(&self.hash)?;
        if self.author.len().max(self.subject.len()) > TEXT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "author and subject of {} are limited to {TEXT_BYTES_MAX} bytes each",
                self.hash
            )));
        }
        Ok(())
    }
}

fn check_hash(hash: &str) -> Result<()> {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if (7..=64).contains(&hash.len()) && hash.bytes().all(hex) {
        return Ok(());
    }
    let start: String = hash.chars().take(70).collect();
    Err(Error::invalid(format!(
        "invalid commit {start:?}: use 7 to 64 lowercase hex digits, or @ and an index"
    )))
}

impl Store {
    /// Returns the newest registered commit.
    pub fn head(&self) -> Pending<'_, Result<Option<IndexedCommit>>> {
        Box::pin(async move {
            let query = Query::prefix(row_name::COMMITS).filter(latest_of(FAMILY)).limit(1);
            let Some(row) = self.table().read_rows(query).next().await? else { return Ok(None) };
            let (tile, commits) = self.commits_of(&row)?;
            let last = commits.into_iter().next_back();
            Ok(last.map(|(offset, commit)| (self.index(tile, offset), commit)))
        })
    }

    /// Returns the registered commits of a range of indexes, in order.
    pub fn commits(
        &self,
        first: CommitIndex,
        last: CommitIndex,
    ) -> Pending<'_, Result<BTreeMap<CommitIndex, Arc<Commit>>>> {
        Box::pin(async move {
            let ((oldest, _), (newest, _)) = (self.tile_of(first), self.tile_of(last));
            // The names of tiles count down, so the newest comes first.
            let range = RowRange {
                start: row_name::commits(newest).into(),
                end: RowRange::prefix(row_name::commits(oldest)).end,
            };
            let mut rows = self.table().read_rows(Query::range(range).filter(latest_of(FAMILY)));
            let mut found = BTreeMap::new();
            while let Some(row) = rows.next().await? {
                let (tile, commits) = self.commits_of(&row)?;
                let commits =
                    commits.into_iter().map(|(offset, commit)| (self.index(tile, offset), commit));
                found.extend(commits.filter(|(index, _)| (first..=last).contains(index)));
            }
            Ok(found)
        })
    }

    /// Returns the commit with a hash, or at `@index`.
    pub fn find_commit<'a>(&'a self, name: &'a str) -> Pending<'a, Result<IndexedCommit>> {
        Box::pin(async move {
            let found = self.find_commits(&[name]).await?;
            Ok(found.into_iter().next().expect("one commit is returned for each name"))
        })
    }

    /// Returns the commits with these names, in the same order.
    pub(super) async fn find_commits(&self, names: &[&str]) -> Result<Vec<IndexedCommit>> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let cached = self.inner.commits.lock().get(*name).cloned();
            found.push(match cached {
                Some(commit) => commit,
                None => {
                    let commit = self.look_up(name).await?;
                    let mut cache = self.inner.commits.lock();
                    if cache.len() >= REMEMBERED_MAX {
                        cache.clear();
                    }
                    cache.insert(name.to_string(), commit.clone());
                    commit
                }
            });
        }
        Ok(found)
    }

    async fn look_up(&self, name: &str) -> Result<IndexedCommit> {
        let index = match name.strip_prefix('@') {
            Some(index) => index.parse().map(CommitIndex).map_err(|_| {
                Error::invalid(format!("invalid commit {name:?}: use @ and an index"))
            })?,
            None => {
                check_hash(name)?;
                let index = self.indexes(&[name]).await?.remove(name);
                index.ok_or_else(|| Error::UnknownCommit(name.into()))?
            }
        };
        let commit = self.commits(index, index).await?.remove(&index);
        Ok((index, commit.ok_or_else(|| Error::UnknownCommit(name.into()))?))
    }

    /// Returns the indexes of those hashes that are registered.
    pub(super) async fn indexes(&self, hashes: &[&str]) -> Result<HashMap<String, CommitIndex>> {
        let keys = hashes.iter().map(|hash| row_name::commit_by_hash(hash, self.shards()));
        let filter = Filter::chain([Filter::column(FAMILY, INDEX), Filter::latest()]);
        let mut rows = self.table().read_rows(Query::keys(keys).filter(filter));
        let mut found = HashMap::new();
        while let Some(row) = rows.next().await? {
            let value = row.value(FAMILY, INDEX).and_then(|value| std::str::from_utf8(value).ok());
            let index = value.and_then(|text| text.parse().ok()).map(CommitIndex);
            let hash = row_name::subkey_text(&row.key);
            let (Some(index), Some(hash)) = (index, hash) else {
                return Err(Error::damaged(&row.key, "its index is not a number"));
            };
            found.insert(hash, index);
        }
        Ok(found)
    }

    pub(super) fn index(&self, tile: Tile, offset: Offset) -> CommitIndex {
        tile.commit(offset, self.settings().tile)
    }

    pub(super) fn commits_of(&self, row: &Row) -> Result<(Tile, BTreeMap<Offset, Arc<Commit>>)> {
        let wrong = |what: String| Error::damaged(&row.key, what);
        let tile = row_name::tile(&row.key).ok_or_else(|| wrong("no tile".into()))?;
        let mut commits = BTreeMap::new();
        for cell in row.family(FAMILY) {
            let offset = tile::offset(&cell.qualifier, self.settings().tile)
                .ok_or_else(|| wrong("a column is not an offset".into()))?;
            let commit: Commit =
                serde_json::from_slice(&cell.value).map_err(|error| wrong(error.to_string()))?;
            commits.insert(offset, Arc::new(commit));
        }
        Ok((tile, commits))
    }
}

/// Returns a filter for the newest cells of a family.
pub(super) fn latest_of(family: &str) -> Filter {
    Filter::chain([Filter::family(family), Filter::latest()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_lowercase_hex() {
        for good in ["abcdef1", &"0".repeat(40), &"f".repeat(64)] {
            assert!(check_hash(good).is_ok(), "{good}");
        }
        for wrong in ["", "abcdef", "ABCDEF1", "abcdefg", &"0".repeat(65), "a:b:c:d", "../../x"] {
            assert!(check_hash(wrong).is_err(), "{wrong}");
        }
    }
}
