//! The way of a commit: checked, admitted when memory and log have room for it,
//! numbered, put into memory and the log queue in one step, and waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Shared, Wait, choose};
use crate::budget::Charge;
use crate::cell::commit::{Commit, TableId};
use crate::error::{Error, Printable, Result};
use crate::log::{Entry, Promise};
use crate::prepare::{Prepared, PreparedTable, Unknown};
use crate::recovery::TABLES_STREAM;
use crate::sequencer::Sequencer;
use crate::table::Table;
use crate::txn::Txn;

/// What a commit is delayed by when a chain begins to be too long.
const CHAIN_PAUSE: Duration = Duration::from_millis(1);
/// How often that is doubled at most.
const CHAIN_PAUSE_DOUBLED_MAX: usize = 6;
/// How often a stopped writer looks again by itself.
const CHAIN_STOP_PAUSES: u32 = 100;

impl Shared {
    pub fn apply(&self, commit: &Commit, commit_max_txn: Txn, wait: Wait) -> Result<Txn> {
        let txn = loop {
            let prepared = Prepared::new(
                commit,
                &self.tables.all(),
                &self.tables.options.limits,
                &self.tables.folds,
                Unknown::Refuse,
            )?;
            self.wait_for_chains(&prepared)?;
            self.wait_for_log()?;
            let permit = self.wait_for_memory(prepared.memory_bytes())?;
            let promise = self.log.promise(commit.bytes().len())?.ok_or(Error::NoLogKept)?;
            if let Some(txn) = self.enter(commit, prepared, commit_max_txn, permit, promise)? {
                break txn;
            }
        };
        match wait {
            Wait::Accepted => {}
            Wait::Written => self.log.wait_written(txn.raw())?,
            Wait::Durable => self.log.wait_durable(txn.raw())?,
        }
        Ok(txn)
    }

    /// Whether any of the waits below would be one.
    pub fn would_wait(&self, table: TableId, bytes: usize) -> bool {
        let options = &self.tables.options;
        let budget = &self.tables.budget;
        let long = |table: Arc<Table>| table.chain_longest() >= options.compact.chain_slow;
        self.log.queued_bytes() >= options.memory.log_queue_bytes_max
            || budget.limit().saturating_sub(budget.used()) < 2 * bytes
            || self.tables.get(table).is_ok_and(long)
    }

    /// Waits while too much is queued for the log.
    fn wait_for_log(&self) -> Result<()> {
        let queued_bytes_max = self.tables.options.memory.log_queue_bytes_max;
        if self.log.queued_bytes() < queued_bytes_max {
            return Ok(());
        }
        let wait = || self.log.wait_queue_below(queued_bytes_max);
        self.counters.for_log.measure(&*self.tables.world.clock, wait)
    }

    /// Waits until there is memory for a commit. Holds no lock, so reads go
    /// on, and all checks come after it.
    pub(super) fn wait_for_memory(&self, bytes: usize) -> Result<Charge> {
        let budget = &self.tables.budget;
        // Half at most, which flushes can always free. Memory is over the
        // budget by the rest of a larger commit until that is flushed.
        let bytes = bytes.min(budget.limit() / 2);
        if let Some(charge) = budget.try_reserve(bytes) {
            return Ok(charge);
        }
        self.counters.for_memory.measure(&*self.tables.world.clock, || {
            if self.tables.world.spawner.is_none() {
                return self.make_room(bytes);
            }
            self.flush_signal.raise();
            // Nobody waits for a flush that has no room on disk either.
            let hopeless = || self.log.failed().or_else(|| self.flush_trouble.disk_full());
            let cancelled = || self.is_stopping() || hopeless().is_some();
            let reserved = budget.reserve(bytes, &cancelled);
            reserved.ok_or_else(|| hopeless().unwrap_or(Error::Closed))
        })
    }

    /// Slows writers down while compaction falls behind, and stops them before
    /// reads have too many places to look in.
    pub(super) fn wait_for_chains(&self, prepared: &Prepared<'_>) -> Result<()> {
        let options = &self.tables.options.compact;
        let longest =
            || prepared.tables.iter().map(|table| table.table.chain_longest()).max().unwrap_or(0);
        if longest() < options.chain_slow {
            return Ok(());
        }
        self.counters.for_chains.measure(&*self.tables.world.clock, || {
            if self.tables.world.spawner.is_none() {
                return self.compact_due().map(drop);
            }
            self.compact_signal.raise();
            let mut chains = self.chains.lock();
            let too_long = longest().saturating_sub(options.chain_slow);
            self.compacted.wait_for(&mut chains, chain_pause(too_long));
            // A chain that compaction cannot shorten, because of damage, stops nobody.
            let can_shrink = || choose::neediest(&self.tables).is_some();
            while longest() >= options.chain_stop && can_shrink() && !self.is_stopping() {
                if let Some(error) = self.compact_trouble.disk_full() {
                    return Err(error);
                }
                self.compacted.wait_for(&mut chains, CHAIN_PAUSE * CHAIN_STOP_PAUSES);
            }
            if self.is_stopping() { Err(Error::Closed) } else { Ok(()) }
        })
    }

    /// Without workers the writer itself makes room.
    fn make_room(&self, bytes: usize) -> Result<Charge> {
        loop {
            if let Some(charge) = self.tables.budget.try_reserve(bytes) {
                return Ok(charge);
            }
            if !self.flush_best()? {
                // What is left belongs to other stores of the process.
                return Ok(self.tables.budget.charge(bytes));
            }
        }
    }

    /// The one atomic step. `None` when the tables changed since the commit
    /// was prepared.
    fn enter(
        &self,
        commit: &Commit,
        mut prepared: Prepared<'_>,
        commit_max_txn: Txn,
        permit: Charge,
        promise: Promise<'_>,
    ) -> Result<Option<Txn>> {
        let mut sequencer = self.sequencer.lock();
        if let Some(error) = self.log.failed() {
            return Err(error);
        }
        if !prepared.tables.iter().all(is_current) {
            return Ok(None);
        }
        self.check_conflicts(&prepared, commit_max_txn)?;
        let txn = self.insert_all(&mut sequencer, commit, &mut prepared)?;
        drop(permit);
        // A reader at this txn must find all its cells, so the log, which may
        // publish it as durable at once, gets it only now.
        let payload = commit.bytes().clone();
        let entry = Entry { stream: TABLES_STREAM, index: txn.raw(), payload };
        self.log.own().ok_or(Error::NoLogKept)?.enqueue_promised(entry, promise)?;
        self.latest.store(txn.raw(), Ordering::Release);
        drop(sequencer);
        self.signal_flush(&prepared);
        Ok(Some(txn))
    }

    /// The same for a commit that is in the caller's log at `index`.
    pub(super) fn enter_at(
        &self,
        commit: &Commit,
        mut prepared: Prepared<'_>,
        permit: Charge,
        index: u64,
    ) -> Result<Option<Txn>> {
        let external = self.log.external().ok_or(Error::LogKept)?;
        let mut sequencer = self.sequencer.lock();
        external.check(index)?;
        if !prepared.tables.iter().all(is_current) {
            return Ok(None);
        }
        let txn = self.insert_all(&mut sequencer, commit, &mut prepared)?;
        drop(permit);
        external.publish(txn, index, commit.bytes().len());
        self.latest.store(txn.raw(), Ordering::Release);
        drop(sequencer);
        self.signal_flush(&prepared);
        Ok(Some(txn))
    }

    fn insert_all(
        &self,
        sequencer: &mut Sequencer,
        commit: &Commit,
        prepared: &mut Prepared<'_>,
    ) -> Result<Txn> {
        let txn = sequencer.next(&self.tables)?;
        for table in &mut prepared.tables {
            self.insert(table, txn, commit);
        }
        sequencer.advance(txn);
        Ok(txn)
    }

    fn check_conflicts(&self, prepared: &Prepared<'_>, commit_max_txn: Txn) -> Result<()> {
        if commit_max_txn == Txn::MAX {
            return Ok(());
        }
        for table in &prepared.tables {
            let conflict = |row: &[u8], newest: Txn| Error::MutationConflict {
                table: table.table.name.clone(),
                row: Printable::from(row),
                newest,
                commit_max_txn,
            };
            for &(slot, row) in &table.rows {
                let newest = self.newest_of(&table.table, slot);
                if newest > commit_max_txn {
                    return Err(conflict(row, newest));
                }
            }
            if let Some(range) = table.ranges.first() {
                // Nobody knows the rows of a range, so any row may conflict.
                let newest = table.table.newest().max(self.floor);
                if newest > commit_max_txn {
                    return Err(conflict(&range.start, newest));
                }
            }
        }
        Ok(())
    }

    fn insert(&self, prepared: &mut PreparedTable<'_>, txn: Txn, commit: &Commit) {
        let table = prepared.table.clone();
        let version = table.version();
        for (group, memory) in version.memory.iter().enumerate() {
            for range in &prepared.ranges {
                memory.active.insert_span(range, txn);
            }
            prepared.insert(group, txn, commit, &memory.active);
            if memory.active_since.get().is_none() && !memory.active.is_empty() {
                let _ = memory.active_since.set(self.tables.world.clock.elapsed());
                // The worker has to know when this memory will be old.
                self.flush_signal.raise();
            }
        }
        for &(slot, _) in &prepared.rows {
            self.conflicts.record(slot, txn);
        }
        table.touched(txn, !prepared.ranges.is_empty());
    }

    fn signal_flush(&self, prepared: &Prepared<'_>) {
        let options = &self.tables.options.flush;
        let budget = &self.tables.budget;
        let large = prepared.tables.iter().any(|table| {
            let version = table.table.version();
            version.memory.iter().any(|memory| memory.active.bytes() >= options.fragment_bytes)
        });
        if large || budget.used() > budget.limit() / 100 * options.budget_percent {
            self.flush_signal.raise();
        }
    }
}

fn is_current(prepared: &PreparedTable<'_>) -> bool {
    !prepared.table.is_dropped() && Arc::ptr_eq(&prepared.schema, &prepared.table.version().schema)
}

/// What a commit is delayed by when a chain has so many runs too many. Twice as
/// long for every two of them: writers come down to what compaction can do
/// before they have to stop.
fn chain_pause(too_many: usize) -> Duration {
    CHAIN_PAUSE * (1 << (too_many / 2).min(CHAIN_PAUSE_DOUBLED_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_chain_the_more_a_commit_is_delayed_up_to_a_limit() {
        let pauses = [0, 1, 2, 5, 11, 12, usize::MAX].map(chain_pause);
        assert_eq!(pauses.map(|pause| pause.as_millis()), [1, 1, 2, 4, 32, 64, 64]);
    }
}
