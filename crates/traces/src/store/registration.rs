//! Registers commits: assigns a permanent index to each.
//!
//! A registration writes, in this order, the commit rows of the tiles (which are
//! authoritative), the rows that map a hash to its index, and the mark: the number of
//! commits, from index 0 on, whose hash rows are known to be written. A registration
//! that fails at any point can be repeated: commits at or above the mark are looked up
//! in the commit rows, so each one keeps the index that it already has, and missing
//! hash rows are written.

use std::collections::{BTreeMap, BTreeSet};

use stele_bigtable_client::{Filter, Mutation, RowMutations};
use stele_grpc::Pending;

use super::Store;
use super::commits::{Commit, FAMILY, INDEX, INDEX_MAX, latest_of};
use super::parallel::{ATTEMPTS_MAX, pause};
use super::put::written;
use crate::error::{Error, Result};
use crate::row_name;
use crate::tile::{self, CommitIndex, Offset, Tile};

/// The column of the mark.
const MARK: &[u8] = b"n";
/// The maximum number of hash rows in one bulk write.
const HASH_ROWS_MAX: usize = 10_000;
/// The number of commits of a line that are registered together.
const LINE_PART: usize = 2_000;

/// A commit to register: at an index, or after all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommit {
    pub commit: Commit,
    pub index: Option<CommitIndex>,
}

impl NewCommit {
    fn check(&self) -> Result<()> {
        if self.index.is_some_and(|index| index > INDEX_MAX) {
            return Err(Error::invalid(format!(
                "commit index too large: the limit is {}",
                INDEX_MAX.0
            )));
        }
        self.commit.check()
    }
}

/// The indexes assigned by one registration.
struct Assigned {
    /// The index of each new commit.
    indexes: Vec<CommitIndex>,
    /// The mark when the registration started.
    mark: u32,
    /// Registered commits at or above the mark, whose hash rows may be missing.
    unmarked: BTreeMap<CommitIndex, String>,
}

impl Store {
    /// Registers commits in order and returns their indexes. Commits without an index
    /// are appended, unless they are already registered. The operation is idempotent,
    /// also after a registration that failed halfway.
    pub fn register<'a>(
        &'a self,
        commits: &'a [NewCommit],
    ) -> Pending<'a, Result<Vec<CommitIndex>>> {
        Box::pin(async move {
            commits.iter().try_for_each(NewCommit::check)?;
            for attempt in 0..ATTEMPTS_MAX {
                let assigned = self.assign(commits).await?;
                if self.write_commits(commits, &assigned.indexes).await? {
                    self.write_hashes(commits, &assigned).await?;
                    return Ok(assigned.indexes);
                }
                pause(attempt).await;
            }
            Err(Error::Conflict("too many concurrent registrations: try again".into()))
        })
    }

    /// Registers the new commits of the line that the table follows, given from the
    /// oldest on, and returns their number. A line that ends before the table's newest
    /// commit, as from a late job, adds nothing. A line that the table does not follow
    /// is rejected.
    pub fn follow<'a>(
        &'a self,
        line: Vec<Commit>,
        progress: &'a mut (dyn FnMut(usize, usize) + Send),
    ) -> Pending<'a, Result<u64>> {
        Box::pin(self.register_line(line, progress))
    }

    async fn register_line(
        &self,
        line: Vec<Commit>,
        progress: &mut (dyn FnMut(usize, usize) + Send),
    ) -> Result<u64> {
        let (Some(end), head) = (line.len().checked_sub(1), self.head().await?) else {
            return Ok(0);
        };
        let mut known = 0;
        if let Some((head, _)) = head {
            let newest = CommitIndex(head.0.min(u32::try_from(end).unwrap_or(u32::MAX)));
            let stored = self.commits(newest, newest).await?.remove(&newest);
            let here = &line[newest.0 as usize];
            if let Some(stored) = stored.filter(|stored| stored.hash != here.hash) {
                return Err(Error::Conflict(format!(
                    "@{0} of the table is {1}, but commit {0} of this line is {2}: the table \
                     follows another branch or repository, or the history was rewritten",
                    newest.0, stored.hash, here.hash
                )));
            }
            known = head.0 as usize + 1;
        }
        let first = known.min(self.hashed_commits().await? as usize).min(line.len());
        let new = line.len().saturating_sub(known);
        let total = line.len() - first;
        let line = line.into_iter().zip(0..).skip(first);
        let line = line.map(|(commit, at)| NewCommit { commit, index: Some(CommitIndex(at)) });
        let line: Vec<NewCommit> = line.collect();
        for (at, part) in line.chunks(LINE_PART).enumerate() {
            self.register(part).await?;
            progress(at * LINE_PART + part.len(), total);
        }
        Ok(new as u64)
    }

    /// Returns how many commits, from index 0 on, certainly have hash rows.
    async fn hashed_commits(&self) -> Result<u32> {
        let filter = Filter::chain([Filter::column(FAMILY, MARK), Filter::latest()]);
        let row = self.table().read_row(row_name::COMMITS_MARK, Some(filter)).await?;
        let Some(value) = row.as_ref().and_then(|row| row.value(FAMILY, MARK)) else {
            return Ok(0);
        };
        let text = std::str::from_utf8(value).ok();
        let damaged =
            || Error::damaged(row_name::COMMITS_MARK.as_bytes(), "its mark is not a number");
        text.and_then(|text| text.parse().ok()).ok_or_else(damaged)
    }

    /// Assigns an index to each commit.
    async fn assign(&self, commits: &[NewCommit]) -> Result<Assigned> {
        let mark = self.hashed_commits().await?;
        let hashes: Vec<_> = commits.iter().map(|new| new.commit.hash.as_str()).collect();
        let mut known = self.indexes(&hashes).await?;
        let head = self.head().await?.map(|(index, _)| index);
        let mut unmarked = BTreeMap::new();
        if let Some(head) = head.filter(|head| head.0 >= mark) {
            for (index, commit) in self.commits(CommitIndex(mark), head).await? {
                known.entry(commit.hash.clone()).or_insert(index);
                unmarked.insert(index, commit.hash.clone());
            }
        }
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
            let indexes = commits.iter().filter_map(|new| new.index).collect();
            return Ok(Assigned { indexes, mark, unmarked: BTreeMap::new() });
        }
        let mut assigned = Assigned { indexes: Vec::new(), mark, unmarked };
        let mut next = head.map_or(0, |head| head.0 + 1);
        for new in commits {
            let index = new.index.or_else(|| known.get(&new.commit.hash).copied());
            let index = index.unwrap_or(CommitIndex(next));
            known.insert(new.commit.hash.clone(), index);
            next = next.max(index.0.saturating_add(1));
            if index > INDEX_MAX {
                return Err(Error::TooLarge("all commit indexes are in use".into()));
            }
            assigned.indexes.push(index);
        }
        Ok(assigned)
    }

    /// Writes commits into the rows of their tiles. Returns false if another
    /// registration has taken one of the assigned indexes.
    async fn write_commits(&self, commits: &[NewCommit], indexes: &[CommitIndex]) -> Result<bool> {
        let mut tiles: BTreeMap<Tile, BTreeMap<Offset, &NewCommit>> = BTreeMap::new();
        for (new, index) in commits.iter().zip(indexes) {
            let (tile, offset) = self.tile_of(*index);
            let before = tiles.entry(tile).or_default().insert(offset, new);
            if before.is_some_and(|before| before.commit.hash != new.commit.hash) {
                return Err(Error::invalid(format!("two commits for index @{}", index.0)));
            }
        }
        for (tile, commits) in tiles {
            if !self.write_tile_commits(tile, commits).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the hash rows of the new commits and of those that may lack them, then
    /// raises the mark as far as commits are contiguous.
    async fn write_hashes(&self, commits: &[NewCommit], assigned: &Assigned) -> Result<()> {
        let new = commits.iter().zip(&assigned.indexes);
        let new = new.map(|(new, index)| (new.commit.hash.as_str(), *index));
        let unmarked = assigned.unmarked.iter().map(|(index, hash)| (hash.as_str(), *index));
        let hashes: BTreeMap<&str, CommitIndex> = unmarked.chain(new).collect();
        let hashes: Vec<_> = hashes.into_iter().collect();
        for part in hashes.chunks(HASH_ROWS_MAX) {
            let rows = part.iter().map(|(hash, index)| {
                let key = row_name::commit_by_hash(hash, self.shards());
                RowMutations::new(key, [Mutation::set_at(FAMILY, INDEX, 0, index.0.to_string())])
            });
            let rows: Vec<_> = rows.collect();
            let keys: Vec<_> = rows.iter().map(|row| row.key.clone()).collect();
            written(&keys, self.table().mutate_rows(rows).await)?;
        }
        let indexes: BTreeSet<u32> = hashes.iter().map(|(_, index)| index.0).collect();
        let covered = indexes.range(assigned.mark..).zip(assigned.mark..);
        let raised = covered.take_while(|(index, expected)| *index == expected).count();
        if raised == 0 {
            return Ok(());
        }
        let mark = assigned.mark.saturating_add(u32::try_from(raised).unwrap_or(u32::MAX));
        // The timestamp of the cell rises with the mark, so that the larger of two
        // concurrent marks wins.
        let set = Mutation::set_at(FAMILY, MARK, i64::from(mark) * 1000, mark.to_string());
        Ok(self.table().mutate_row(row_name::COMMITS_MARK, [set]).await?)
    }

    async fn write_tile_commits(
        &self,
        tile: Tile,
        mut commits: BTreeMap<Offset, &NewCommit>,
    ) -> Result<bool> {
        let row = row_name::commits(tile);
        for attempt in 0..ATTEMPTS_MAX {
            let stored = match self.table().read_row(row.clone(), Some(latest_of(FAMILY))).await? {
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
                        "@{} is {}, not {}: the history of the repository was rewritten",
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
                let json =
                    serde_json::to_string(&new.commit).expect("commits can be encoded as JSON");
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
        Err(Error::Conflict(format!(
            "too many concurrent changes of the commits of tile {}",
            tile.number()
        )))
    }
}
