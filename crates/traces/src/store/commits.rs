//! Commits: which index a hash has, and who made it when. A commit's place
//! never changes once it is registered, so a server without a repository can
//! answer every read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_bigtable::client::{Filter, Mutation, Query, Row, RowMutations, RowRange};

use super::Store;
use super::parallel::{ATTEMPTS_MAX, pause};
use super::put::written;
use crate::error::{Error, Result};
use crate::row_name;
use crate::tile::{self, CommitIndex, Offset, Tile};

const FAMILY: &str = "C";
const INDEX: &[u8] = b"i";
const TEXT_BYTES_MAX: usize = 1024;
/// Hashes whose commits are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// The last index that a commit may have.
const INDEX_MAX: CommitIndex = CommitIndex(i32::MAX as u32);
/// Commits that one request may ask for.
pub const COMMITS_MAX: usize = 100_000;

pub type Found = HashMap<String, (CommitIndex, Arc<Commit>)>;

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

/// A commit to be registered: at an index, or after all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommit {
    pub commit: Commit,
    pub index: Option<CommitIndex>,
}

impl NewCommit {
    fn check(&self) -> Result<()> {
        if self.index.is_some_and(|index| index > INDEX_MAX) {
            return Err(Error::invalid(format!("a commit's index is at most {}", INDEX_MAX.0)));
        }
        self.commit.check()
    }
}

impl Commit {
    fn check(&self) -> Result<()> {
        check_hash(&self.hash)?;
        if self.author.len().max(self.subject.len()) > TEXT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "author and subject of {} may have {TEXT_BYTES_MAX} bytes each",
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
    let shown: String = hash.chars().take(70).collect();
    Err(Error::invalid(format!(
        "{shown:?} is no commit: give 7 to 64 hex digits in small letters, or @ and an index"
    )))
}

impl Store {
    /// The newest commit that is registered.
    pub async fn head(&self) -> Result<Option<(CommitIndex, Arc<Commit>)>> {
        let query = Query::prefix(row_name::COMMITS).filter(latest()).limit(1);
        let Some(row) = self.table().read_rows(query).next().await? else { return Ok(None) };
        let (tile, commits) = self.commits_of(&row)?;
        let last = commits.into_iter().next_back();
        Ok(last.map(|(offset, commit)| (self.index(tile, offset), commit)))
    }

    /// The registered commits of a range of indexes, in order.
    pub async fn commits(
        &self,
        first: CommitIndex,
        last: CommitIndex,
    ) -> Result<BTreeMap<CommitIndex, Arc<Commit>>> {
        let ((oldest, _), (newest, _)) = (self.tile_of(first), self.tile_of(last));
        // Names of tiles count down, so the newest comes first.
        let range = RowRange {
            start: row_name::commits(newest).into(),
            end: RowRange::prefix(row_name::commits(oldest)).end,
        };
        let mut rows = self.table().read_rows(Query::range(range).filter(latest()));
        let mut found = BTreeMap::new();
        while let Some(row) = rows.next().await? {
            let (tile, commits) = self.commits_of(&row)?;
            let commits =
                commits.into_iter().map(|(offset, commit)| (self.index(tile, offset), commit));
            found.extend(commits.filter(|(index, _)| (first..=last).contains(index)));
        }
        Ok(found)
    }

    /// The commit of a hash, or of `@index`.
    pub async fn find_commit(&self, name: &str) -> Result<(CommitIndex, Arc<Commit>)> {
        let found = self.find_commits(&[name]).await?;
        Ok(found.into_iter().next().expect("as many are found as were asked for"))
    }

    /// The commits of these names, in their order.
    pub(super) async fn find_commits(
        &self,
        names: &[&str],
    ) -> Result<Vec<(CommitIndex, Arc<Commit>)>> {
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

    async fn look_up(&self, name: &str) -> Result<(CommitIndex, Arc<Commit>)> {
        let index = match name.strip_prefix('@') {
            Some(index) => index.parse().map(CommitIndex).map_err(|_| {
                Error::invalid(format!("{name:?} is no commit: after @ comes an index"))
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

    /// The indexes of those hashes that have one.
    async fn indexes(&self, hashes: &[&str]) -> Result<HashMap<String, CommitIndex>> {
        let keys = hashes.iter().map(|hash| row_name::commit_by_hash(hash, self.shards()));
        let filter = Filter::chain([Filter::column(FAMILY, INDEX), Filter::latest()]);
        let mut rows = self.table().read_rows(Query::keys(keys).filter(filter));
        let mut found = HashMap::new();
        while let Some(row) = rows.next().await? {
            let value = row.value(FAMILY, INDEX).and_then(|value| std::str::from_utf8(value).ok());
            let index = value.and_then(|text| text.parse().ok()).map(CommitIndex);
            let hash = row_name::subkey_text(&row.key);
            let (Some(index), Some(hash)) = (index, hash) else {
                return Err(Error::damaged(&row.key, "its index is no number"));
            };
            found.insert(hash, index);
        }
        Ok(found)
    }

    /// Registers commits, in order, and gives their indexes. Those without an
    /// index come after all that are registered, unless they already are.
    /// Registering the same again changes nothing.
    pub async fn register(&self, commits: &[NewCommit]) -> Result<Vec<CommitIndex>> {
        commits.iter().try_for_each(NewCommit::check)?;
        for attempt in 0..ATTEMPTS_MAX {
            let indexes = self.assign(commits).await?;
            if self.write_commits(commits, &indexes).await? {
                return Ok(indexes);
            }
            pause(attempt).await;
        }
        Err(Error::Conflict("others registered commits again and again meanwhile".into()))
    }

    /// Where each commit is, or is to be.
    async fn assign(&self, commits: &[NewCommit]) -> Result<Vec<CommitIndex>> {
        let hashes: Vec<_> = commits.iter().map(|new| new.commit.hash.as_str()).collect();
        let mut known = self.indexes(&hashes).await?;
        for new in commits {
            let (before, now) = (known.get(&new.commit.hash), new.index);
            if let (Some(before), Some(now)) = (before, now)
                && *before != now
            {
                return Err(Error::Conflict(format!(
                    "{} is @{} and cannot become @{}",
                    new.commit.hash, before.0, now.0
                )));
            }
        }
        if commits.iter().all(|new| new.index.is_some()) {
            return Ok(commits.iter().filter_map(|new| new.index).collect());
        }
        let head = self.head().await?.map(|(index, _)| index);
        if let Some(head) = head {
            // Whoever registered last may have stopped before it wrote hashes.
            let size = u32::from(self.settings().tile);
            let recent = CommitIndex(head.0.saturating_sub(size));
            for (index, commit) in self.commits(recent, head).await? {
                known.entry(commit.hash.clone()).or_insert(index);
            }
        }
        let mut next = head.map_or(0, |head| head.0 + 1);
        let mut indexes = Vec::with_capacity(commits.len());
        for new in commits {
            let index = new.index.or_else(|| known.get(&new.commit.hash).copied());
            let index = index.unwrap_or(CommitIndex(next));
            known.insert(new.commit.hash.clone(), index);
            next = next.max(index.0.saturating_add(1));
            if index > INDEX_MAX {
                return Err(Error::TooLarge("there are no more commit indexes".into()));
            }
            indexes.push(index);
        }
        Ok(indexes)
    }

    /// False if an index that was meant for a commit without one has been
    /// taken by another.
    async fn write_commits(&self, commits: &[NewCommit], indexes: &[CommitIndex]) -> Result<bool> {
        let mut tiles: BTreeMap<Tile, BTreeMap<Offset, &NewCommit>> = BTreeMap::new();
        for (new, index) in commits.iter().zip(indexes) {
            let (tile, offset) = self.tile_of(*index);
            let before = tiles.entry(tile).or_default().insert(offset, new);
            if before.is_some_and(|before| before.commit.hash != new.commit.hash) {
                return Err(Error::invalid(format!("two commits are given for @{}", index.0)));
            }
        }
        for (tile, commits) in tiles {
            if !self.write_tile_commits(tile, commits).await? {
                return Ok(false);
            }
        }
        let rows = commits.iter().zip(indexes).map(|(new, index)| {
            let key = row_name::commit_by_hash(&new.commit.hash, self.shards());
            RowMutations::new(key, [Mutation::set_at(FAMILY, INDEX, 0, index.0.to_string())])
        });
        let rows: Vec<_> = rows.collect();
        let keys: Vec<_> = rows.iter().map(|row| row.key.clone()).collect();
        written(&keys, self.table().mutate_rows(rows).await)?;
        Ok(true)
    }

    async fn write_tile_commits(
        &self,
        tile: Tile,
        mut commits: BTreeMap<Offset, &NewCommit>,
    ) -> Result<bool> {
        let row = row_name::commits(tile);
        for attempt in 0..ATTEMPTS_MAX {
            let stored = match self.table().read_row(row.clone(), Some(latest())).await? {
                Some(row) => self.commits_of(&row)?.1,
                None => BTreeMap::new(),
            };
            for (offset, stored) in stored {
                let Some(new) = commits.remove(&offset) else { continue };
                if stored.hash != new.commit.hash {
                    if new.index.is_none() {
                        return Ok(false);
                    }
                    return Err(Error::Conflict(format!(
                        "@{} is {} and not {}: the history of the repository was changed",
                        self.index(tile, offset).0,
                        stored.hash,
                        new.commit.hash
                    )));
                }
            }
            if commits.is_empty() {
                return Ok(true);
            }
            let columns: Vec<_> = commits.keys().map(|offset| tile::column(*offset)).collect();
            let taken = Filter::chain([
                Filter::family(FAMILY),
                Filter::qualifier_regex(columns.join("|")),
                Filter::cells_per_row(1),
            ]);
            let writes = commits.iter().map(|(offset, new)| {
                let json = serde_json::to_string(&new.commit)
                    .expect("a commit is made of text and a number");
                Mutation::set_at(FAMILY, tile::column(*offset), 0, json)
            });
            let writes: Vec<_> = writes.collect();
            match self.table().check_and_mutate(row.clone(), Some(taken), [], writes).await {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
            pause(attempt).await;
        }
        Err(Error::Conflict(format!("commits of tile {} are being written", tile.number())))
    }

    fn index(&self, tile: Tile, offset: Offset) -> CommitIndex {
        tile.commit(offset, self.settings().tile)
    }

    fn commits_of(&self, row: &Row) -> Result<(Tile, BTreeMap<Offset, Arc<Commit>>)> {
        let wrong = |what: String| Error::damaged(&row.key, what);
        let tile = row_name::tile(&row.key).ok_or_else(|| wrong("no tile".into()))?;
        let mut commits = BTreeMap::new();
        for cell in row.family(FAMILY) {
            let offset = tile::offset(&cell.qualifier, self.settings().tile)
                .ok_or_else(|| wrong("a column is no offset".into()))?;
            let commit: Commit =
                serde_json::from_slice(&cell.value).map_err(|error| wrong(error.to_string()))?;
            commits.insert(offset, Arc::new(commit));
        }
        Ok((tile, commits))
    }
}

fn latest() -> Filter {
    Filter::chain([Filter::family(FAMILY), Filter::latest()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_hex_in_small_letters() {
        for good in ["abcdef1", &"0".repeat(40), &"f".repeat(64)] {
            assert!(check_hash(good).is_ok(), "{good}");
        }
        for wrong in ["", "abcdef", "ABCDEF1", "abcdefg", &"0".repeat(65), "a:b:c:d", "../../x"] {
            assert!(check_hash(wrong).is_err(), "{wrong}");
        }
    }
}
