//! A store whose log the caller keeps, such as a replicated log: commits come
//! with their index in it, and all chains of all tables are flushed at one
//! index by one config edit. After a crash the store is exactly as of that
//! index, and the caller applies again what follows.

use super::keeping::Log;
use super::{Shared, Store};
use crate::cell::commit::{Commit, TableId};
use crate::config::ConfigEdit;
use crate::error::{Error, Result};
use crate::prepare::{Prepared, Unknown};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::txn::Txn;
use crate::workers::claims::{Claim, Work};
use crate::workers::serialize::{self, Victim};

/// How far the caller's log has come into the store.
pub struct External {
    /// The newest commit that reads see.
    latest: AtomicU64,
    applied: AtomicU64,
    flushed: AtomicU64,
    /// Bytes of commits applied since this store was opened, and of those, how
    /// many a flush has taken.
    applied_bytes: AtomicU64,
    flushed_bytes: AtomicU64,
    /// Tables up to this one existed when the store was opened.
    last_table: TableId,
}

impl External {
    pub fn new(base: Txn, flushed: u64, last_table: TableId) -> External {
        External {
            latest: AtomicU64::new(base.raw()),
            applied: AtomicU64::new(flushed),
            flushed: AtomicU64::new(flushed),
            applied_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
            last_table,
        }
    }

    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Bytes of commits that the caller would have to apply again.
    pub fn unflushed_bytes(&self) -> u64 {
        let flushed = self.flushed_bytes.load(Ordering::Relaxed);
        self.applied_bytes.load(Ordering::Relaxed).saturating_sub(flushed)
    }

    /// Refuses an index that does not follow those before it. `None` is a part
    /// of the commit at the next index.
    pub fn check(&self, index: Option<u64>) -> Result<()> {
        let applied = self.applied.load(Ordering::Acquire);
        match index {
            Some(index) if index <= applied => Err(Error::IndexPassed { index, applied }),
            _ => Ok(()),
        }
    }

    /// The commit is in memory: it is applied, and seen by every read. Called
    /// under the apply lock.
    pub fn publish(&self, txn: Txn, index: Option<u64>, bytes: usize) {
        self.applied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(index) = index {
            self.applied.store(index, Ordering::Release);
        }
        self.latest.store(txn.raw(), Ordering::Release);
    }
}

impl Store {
    /// Applies a commit that stands at `index` of the caller's log, where it is
    /// safe already. Indexes rise. Every read sees it at once.
    ///
    /// A table that was dropped is left out: the log may still have commits to
    /// it. Tables and schemas are not part of the log; they change at once and
    /// for good.
    pub fn apply_at(&self, commit: &Commit, index: u64) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply_at(commit, Some(index))
    }

    /// Applies a part of the commit at the next index ahead of the rest, so that
    /// a large commit is not held in memory whole. Every read sees it at once.
    /// The store does not come to that index: after a crash the caller applies
    /// all of the commit again, over those of its parts that were flushed, so
    /// the parts must not change what it does.
    pub fn apply_part(&self, commit: &Commit) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply_at(commit, None)
    }

    /// The index of the last commit applied; after opening, that of the last
    /// one in files.
    pub fn applied_index(&self) -> u64 {
        let external = self.shared.log.external();
        external.map_or(0, |external| external.applied.load(Ordering::Acquire))
    }

    /// All commits up to this index are in files that one config edit named;
    /// the caller's log is needed for later ones only.
    pub fn flushed_index(&self) -> u64 {
        let external = self.shared.log.external();
        external.map_or(0, |external| external.flushed.load(Ordering::Acquire))
    }
}

impl Shared {
    fn apply_at(&self, commit: &Commit, index: Option<u64>) -> Result<Txn> {
        let Log::External(external) = &self.log else { return Err(Error::LogKept) };
        external.check(index)?;
        loop {
            let prepared = Prepared::new(
                commit,
                &self.tables.all(),
                &self.tables.options.limits,
                &self.tables.folds,
                Unknown::Dropped { last_table: external.last_table },
            )?;
            let permit = self.admit_logged(&prepared, commit)?;
            if let Some(txn) = self.enter_at(commit, prepared, permit, index)? {
                return Ok(txn);
            }
        }
    }

    /// Flushes all memory at one index. Tells whether there was any.
    pub fn flush_all(&self, claim: &Claim<'_>) -> Result<bool> {
        assert_eq!(claim.work, Work::FlushAll, "all memory is flushed at once");
        let Log::External(external) = &self.log else { return Err(Error::LogKept) };
        let (victims, index, bytes) = self.seal_everything(external);
        if victims.is_empty() && index == external.flushed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let edit = ConfigEdit::SetFlushedIndex { index };
        let published = serialize::serialize_all(&self.tables, &victims, self, edit)?;
        assert!(published, "no table is dropped while all are flushed");
        external.flushed.store(index, Ordering::Release);
        external.flushed_bytes.store(bytes, Ordering::Relaxed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Closes the active memory of all groups of all tables between two
    /// commits: the groups, the index that they have come to, and the bytes.
    fn seal_everything(&self, external: &External) -> (Vec<Victim>, u64, u64) {
        let _no_writers = self.sequencer.lock();
        let mut victims = Vec::new();
        for table in self.tables.all().values() {
            for group in 0..table.version().memory.len() {
                table.seal(group, &self.tables.budget);
                if !table.version().memory[group].sealed.is_empty() {
                    victims.push(Victim { table: table.clone(), group });
                }
            }
        }
        let bytes = external.applied_bytes.load(Ordering::Relaxed);
        (victims, external.applied.load(Ordering::Acquire), bytes)
    }
}
