//! The commit path: a commit is validated and admitted, then assigned a txn and
//! put into memory and the log queue in one step; finally the caller waits for
//! the chosen durability.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admission::Permit;
use super::engine::Engine;
use super::log_mode::LogSpace;
use super::recovery::TABLES_STREAM;
use crate::budget::Charge;
use crate::cell::commit::{Commit, TableId};
use crate::config::ConfigEdit;
use crate::durability::Durability;
use crate::error::{Error, Printable, Result};
use crate::log::LogEntry;
use crate::schema::Schema;
use crate::sync::AbortOnPanic;
use crate::tablet::Table;
use crate::txn::Txn;
use crate::workers::flush::FlushTarget;
use crate::write::{Prepared, PreparedTable, Sequencer};

impl Engine {
    pub fn apply(
        &self,
        commit: &Commit,
        commit_max_txn: Txn,
        durability: Durability,
    ) -> Result<Txn> {
        let permit = self.admit_blocking(commit)?;
        let txn = self.apply_admitted(permit, commit, commit_max_txn, None)?;
        self.log.wait(txn.raw(), durability)?;
        Ok(txn)
    }

    pub fn apply_admitted(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
        schema: Option<(TableId, &Arc<Schema>)>,
    ) -> Result<Txn> {
        let sample = self.begin_sample();
        let Permit { memory, log_space, mut prepared } = permit;
        let (mut memory, mut log_space) = (Some(memory), Some(log_space));
        loop {
            let prepared = match prepared.take() {
                Some(prepared) => prepared,
                None => self.prepare(commit)?,
            };
            // `enter` fails unless the prepared schema is the current one.
            if let Some((table, schema)) = schema {
                prepared.check_schema(table, schema)?;
            }
            let sampled = sample.and_then(|_| sampled_row(&prepared));
            let entered =
                self.enter(commit, prepared, commit_max_txn, &mut memory, &mut log_space)?;
            if let Some(txn) = entered {
                if let Some((table, row)) = sampled {
                    self.end_sample(sample, &table, &row);
                }
                return Ok(txn);
            }
        }
    }

    /// The atomic step of a commit. Returns `None` if the tables changed since
    /// the commit was prepared, or a new generation had to be taken.
    fn enter(
        &self,
        commit: &Commit,
        mut prepared: Prepared<'_>,
        commit_max_txn: Txn,
        memory: &mut Option<Charge>,
        log_space: &mut Option<LogSpace<'_>>,
    ) -> Result<Option<Txn>> {
        let _abort = AbortOnPanic::during("while a commit was applied");
        let mut sequencer = self.sequencer.lock();
        self.check_failure()?;
        if !prepared.tables.iter().all(is_current) {
            return Ok(None);
        }
        self.check_conflicts(&prepared, commit_max_txn)?;
        let Some(txn) = sequencer.next() else {
            drop(sequencer);
            return self.take_generation().map(|()| None);
        };
        let halfway = self.insert_all(&mut sequencer, txn, commit, &mut prepared);
        *memory = None;
        // A reader at this txn must see all its cells. The log may publish it
        // as durable immediately, so the entry is queued only now.
        let payload = commit.bytes().clone();
        let entry = LogEntry { stream: TABLES_STREAM, index: txn.raw(), payload };
        let log_space = log_space.take().expect("a permit is used once");
        self.log.enqueue(entry, log_space)?;
        self.latest.store(txn.raw(), Ordering::Release);
        drop(sequencer);
        if halfway {
            self.ask_for_generation();
        }
        self.signal_flush(&prepared);
        Ok(Some(txn))
    }

    /// Like `enter`, for a commit at `index` of the caller's log.
    pub(super) fn enter_at(
        &self,
        commit: &Commit,
        mut prepared: Prepared<'_>,
        permit: Charge,
        index: Option<u64>,
    ) -> Result<Option<Txn>> {
        let external = self.log.external().ok_or(Error::HasOwnLog)?;
        let _abort = AbortOnPanic::during("while a commit was applied");
        let mut sequencer = self.sequencer.lock();
        external.check(index)?;
        if !prepared.tables.iter().all(is_current) {
            return Ok(None);
        }
        let Some(txn) = sequencer.next() else {
            drop(sequencer);
            return self.take_generation().map(|()| None);
        };
        let halfway = self.insert_all(&mut sequencer, txn, commit, &mut prepared);
        drop(permit);
        external.publish(txn, index, commit.bytes().len());
        self.latest.store(txn.raw(), Ordering::Release);
        drop(sequencer);
        if halfway {
            self.ask_for_generation();
        }
        self.signal_flush(&prepared);
        Ok(Some(txn))
    }

    /// Returns whether it is time to take a spare generation.
    fn insert_all(
        &self,
        sequencer: &mut Sequencer,
        txn: Txn,
        commit: &Commit,
        prepared: &mut Prepared<'_>,
    ) -> bool {
        for table in &mut prepared.tables {
            self.insert(table, txn, commit);
        }
        sequencer.advance(txn)
    }

    /// Takes a generation of txns, durably, for when the present one is exhausted.
    pub(super) fn take_generation(&self) -> Result<()> {
        let configs = self.tables.config.edit(&[ConfigEdit::TakeGeneration])?;
        self.sequencer.lock().provide(configs.generation);
        Ok(())
    }

    /// Lets a worker take a generation. Without one, or if it is too late, the first
    /// commit without a number takes it.
    #[cold]
    fn ask_for_generation(&self) {
        self.generation_wanted.store(true, Ordering::Release);
        self.claims.urgent.raise();
    }

    /// Takes a generation if one was asked for.
    pub(super) fn provide_generation(&self) {
        if self.generation_wanted.load(Ordering::Acquire)
            && self.generation_wanted.swap(false, Ordering::AcqRel)
            && let Err(error) = self.take_generation()
        {
            tracing::warn!(%error, "no spare generation of txns: a later commit takes one");
        }
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
                let newest = self.newest_of(&table.table, row, slot);
                if newest > commit_max_txn {
                    return Err(conflict(row, newest));
                }
            }
            if let Some(range) = table.ranges.first() {
                // The rows in a range are unknown, so any row of the table may
                // conflict.
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
            for range in prepared.ranges_of(group) {
                memory.active.insert_range_tombstone(range, txn);
            }
            prepared.insert(group, txn, commit, &memory.active);
            if memory.active_since.get().is_none() && !memory.active.is_empty() {
                let _ = memory.active_since.set(self.tables.world.clock.elapsed());
                // The workers must schedule the flush by age.
                self.claims.urgent.raise();
            }
        }
        for &(slot, _) in &prepared.rows {
            self.conflicts.record(slot, txn);
        }
        table.touched(txn, !prepared.ranges.is_empty());
    }

    fn signal_flush(&self, prepared: &Prepared<'_>) {
        let options = &self.tables.options.flush;
        let budget = &self.tables.resources.budget;
        // No signal is needed for memory that is being flushed, which is
        // checked again afterwards, nor for a failed flush, which is retried on
        // its own.
        let is_due = |target: FlushTarget| {
            let work = self.flush_work(&target);
            !self.claims.is_held(work) && !self.failures.backs_off(work)
        };
        let large = prepared.tables.iter().any(|PreparedTable { table, .. }| {
            let version = table.version();
            let flush_bytes = version.flush_bytes(options.fragment_bytes, budget.limit());
            let mut groups = version.memory.iter().enumerate();
            groups.any(|(group, memory)| {
                memory.active.bytes() >= flush_bytes
                    && is_due(FlushTarget { table: table.clone(), group })
            })
        });
        let short = || {
            !self.claims.is_flushing()
                && budget.used() > budget.limit() / 100 * options.budget_percent
                && !self.failures.flush_backs_off()
        };
        if large || short() {
            self.claims.urgent.raise();
        }
    }
}

/// Returns the row that a commit is counted for.
#[cold]
fn sampled_row(prepared: &Prepared<'_>) -> Option<(Arc<Table>, Vec<u8>)> {
    let largest = prepared.tables.iter().max_by_key(|table| table.rows.len())?;
    let (_, row) = largest.rows.get(largest.rows.len() / 2)?;
    Some((largest.table.clone(), row.to_vec()))
}

fn is_current(prepared: &PreparedTable<'_>) -> bool {
    prepared.fence == prepared.table.fence()
}
