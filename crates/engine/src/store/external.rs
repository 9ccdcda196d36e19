//! A store with an external log, such as a replicated one: each commit comes
//! with its index in that log, and one config edit flushes all chains of all
//! tables at one index. After a crash the store is exactly as of that index,
//! and the caller replays later entries.

use super::engine::Engine;
use super::handle::Store;
use super::log_mode::LogMode;
use crate::cell::commit::{Commit, TableId};
use crate::config::ConfigEdit;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::txn::Txn;
use crate::workers::claims::{Claim, Work};
use crate::workers::flush::{self, FlushTarget};
use crate::write::{Prepared, Unknown};

/// How much of the external log is applied and flushed.
pub struct ExternalLog {
    /// The newest commit visible to reads.
    latest: AtomicU64,
    applied: AtomicU64,
    flushed: AtomicU64,
    /// Bytes of commits applied since the store was opened, and how many of
    /// them are flushed.
    applied_bytes: AtomicU64,
    flushed_bytes: AtomicU64,
    /// The highest table id at open.
    last_table: TableId,
}

impl ExternalLog {
    pub fn new(base: Txn, flushed: u64, last_table: TableId) -> ExternalLog {
        ExternalLog {
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

    /// Returns the size of the commits that the caller would have to replay.
    pub fn unflushed_bytes(&self) -> u64 {
        let flushed = self.flushed_bytes.load(Ordering::Relaxed);
        self.applied_bytes.load(Ordering::Relaxed).saturating_sub(flushed)
    }

    /// Rejects an index at or below the last one applied. `None` stands for a
    /// part of the commit at the next index.
    pub fn check(&self, index: Option<u64>) -> Result<()> {
        let applied = self.applied.load(Ordering::Acquire);
        match index {
            Some(index) if index <= applied => Err(Error::IndexPassed { index, applied }),
            _ => Ok(()),
        }
    }

    /// Makes a commit that is in memory visible to all reads. Called with the
    /// apply lock held.
    pub fn publish(&self, txn: Txn, index: Option<u64>, bytes: usize) {
        self.applied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(index) = index {
            self.applied.store(index, Ordering::Release);
        }
        self.latest.store(txn.raw(), Ordering::Release);
    }
}

impl Store {
    /// Applies the commit at `index` of the caller's log, where it is already
    /// durable. Indices must increase. The commit is immediately visible to all
    /// reads.
    ///
    /// Changes to dropped tables are skipped: the log may still contain some.
    /// Tables and schemas are not part of the log; changes to them take effect
    /// immediately and permanently.
    pub fn apply_at(&self, commit: &Commit, index: u64) -> Result<Txn> {
        self.check_open()?;
        self.engine.apply_at(commit, Some(index))
    }

    /// Applies a part of the commit at the next index ahead of the rest, so
    /// that a large commit need not be in memory as a whole. The part is
    /// immediately visible to all reads. The applied index does not advance:
    /// after a crash the caller replays the whole commit on top of any parts
    /// that were flushed, so applying the parts must be idempotent.
    pub fn apply_part(&self, commit: &Commit) -> Result<Txn> {
        self.check_open()?;
        self.engine.apply_at(commit, None)
    }

    /// Returns the index of the last applied commit; after opening, that of the
    /// last flushed one.
    pub fn applied_index(&self) -> u64 {
        let external = self.engine.log.external();
        external.map_or(0, |external| external.applied.load(Ordering::Acquire))
    }

    /// Returns the flushed index: the caller's log is needed only for later
    /// commits.
    pub fn flushed_index(&self) -> u64 {
        let external = self.engine.log.external();
        external.map_or(0, |external| external.flushed.load(Ordering::Acquire))
    }
}

impl Engine {
    fn apply_at(&self, commit: &Commit, index: Option<u64>) -> Result<Txn> {
        let LogMode::External(external) = &self.log else { return Err(Error::HasOwnLog) };
        external.check(index)?;
        loop {
            let prepared = Prepared::new(
                commit,
                &self.tables.map.all(),
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

    /// Flushes all memory at one index. Returns whether there was any.
    pub fn flush_all(&self, claim: &Claim<'_>) -> Result<bool> {
        assert_eq!(claim.work, Work::FlushAll, "all memory is flushed at once");
        let LogMode::External(external) = &self.log else { return Err(Error::HasOwnLog) };
        let (targets, index, bytes) = self.seal_everything(external);
        if targets.is_empty() && index == external.flushed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let edit = ConfigEdit::SetFlushedIndex { index };
        flush::flush_all_sealed(&self.tables, &targets, self, edit)?;
        external.flushed.store(index, Ordering::Release);
        external.flushed_bytes.store(bytes, Ordering::Relaxed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Seals the active memory of all groups of all tables between two commits.
    /// Returns the groups with sealed memory, the applied index, and the bytes
    /// applied.
    fn seal_everything(&self, external: &ExternalLog) -> (Vec<FlushTarget>, u64, u64) {
        let _no_writers = self.sequencer.lock();
        let mut targets = Vec::new();
        for table in self.tables.map.all().values() {
            for group in 0..table.version().memory.len() {
                table.seal(group, &self.tables.resources.budget);
                if !table.version().memory[group].sealed.is_empty() {
                    targets.push(FlushTarget { table: table.clone(), group });
                }
            }
        }
        let bytes = external.applied_bytes.load(Ordering::Relaxed);
        (targets, external.applied.load(Ordering::Acquire), bytes)
    }
}
