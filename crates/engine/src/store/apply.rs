//! The commit path: a commit is validated and admitted, then assigned a txn and
//! put into memory and the log queue in one step; finally the caller waits for
//! the chosen durability.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admission::Permit;
use super::engine::Engine;
use super::recovery::TABLES_STREAM;
use crate::budget::Charge;
use crate::cell::commit::{Commit, TableId};
use crate::durability::Durability;
use crate::error::{Error, Printable, Result};
use crate::log::{LogEntry, LogReservation};
use crate::schema::Schema;
use crate::sync::AbortOnPanic;
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
            let entered =
                self.enter(commit, prepared, commit_max_txn, &mut memory, &mut log_space)?;
            if let Some(txn) = entered {
                return Ok(txn);
            }
        }
    }

    /// The atomic step of a commit. Returns `None` if the tables changed since
    /// the commit was prepared.
    fn enter(
        &self,
        commit: &Commit,
        mut prepared: Prepared<'_>,
        commit_max_txn: Txn,
        memory: &mut Option<Charge>,
        log_space: &mut Option<LogReservation<'_>>,
    ) -> Result<Option<Txn>> {
        let _abort = AbortOnPanic::during("while a commit was applied");
        let mut sequencer = self.sequencer.lock();
        self.check_failure()?;
        if !prepared.tables.iter().all(is_current) {
            return Ok(None);
        }
        self.check_conflicts(&prepared, commit_max_txn)?;
        let txn = self.insert_all(&mut sequencer, commit, &mut prepared)?;
        *memory = None;
        // A reader at this txn must see all its cells. The log may publish it
        // as durable immediately, so the entry is queued only now.
        let payload = commit.bytes().clone();
        let entry = LogEntry { stream: TABLES_STREAM, index: txn.raw(), payload };
        let log_space = log_space.take().expect("a permit is used once");
        self.log.own().ok_or(Error::HasExternalLog)?.enqueue_reserved(entry, log_space)?;
        self.latest.store(txn.raw(), Ordering::Release);
        drop(sequencer);
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
        let txn = sequencer.next(&self.tables.config)?;
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
            for range in &prepared.ranges {
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
            let mut groups = version.memory.iter().enumerate();
            groups.any(|(group, memory)| {
                memory.active.bytes() >= options.fragment_bytes
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

fn is_current(prepared: &PreparedTable<'_>) -> bool {
    !prepared.table.is_dropped() && Arc::ptr_eq(&prepared.schema, &prepared.table.version().schema)
}
