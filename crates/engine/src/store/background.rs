//! What a store does in the background, in threads or by hand.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::keeping::Log;
use super::{Shared, serialize};
use crate::error::{Error, Result};
use crate::log::GroupLog;
use crate::memory::MemoryFragment;
use crate::recovery::TABLES_STREAM;
use crate::sync::{Mutex, MutexGuard};
use crate::table::Table;
use crate::txn::Txn;
use crate::workers::choose::{self, Choice};
use crate::workers::compact::{Keeper, compact};
use crate::workers::serialize::{LogKeeper, Victim};
use crate::world::{Joiner, Priority, Spawner};

/// How long a worker rests after a failure before it tries again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How the last attempt of a worker failed, if it did.
#[derive(Default)]
pub struct Trouble(Mutex<Option<Error>>);

impl Trouble {
    fn note(&self, outcome: &Result<bool>) {
        *self.0.lock() = outcome.as_ref().err().cloned();
    }

    /// The failure, if it was for want of room.
    pub fn disk_full(&self) -> Option<Error> {
        self.0.lock().clone().filter(|error| matches!(error, Error::DiskFull { .. }))
    }
}

impl Shared {
    /// Starts the workers of a store.
    pub fn spawn_workers(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
    ) -> std::io::Result<Vec<Box<dyn Joiner>>> {
        use Priority::{Low, Normal};
        let (log, serialize, compact) = (self.clone(), self.clone(), self.clone());
        let mut workers = Vec::new();
        if log.log.own().is_some() {
            let run = move || log.log.own().into_iter().for_each(GroupLog::run);
            workers.push(spawner.spawn("stele-log", Normal, Box::new(run))?);
        }
        workers.extend([
            spawner.spawn("stele-serialize", Low, Box::new(move || serialize.run_serialize()))?,
            spawner.spawn("stele-compact", Low, Box::new(move || compact.run_compact()))?,
        ]);
        Ok(workers)
    }

    fn run_serialize(&self) {
        while !self.is_stopping() {
            let flushed = self.flush_due();
            self.flush_trouble.note(&flushed);
            match flushed {
                Ok(true) => {}
                Ok(false) => self.flush_signal.wait(self.until_age_flush()),
                Err(error) => {
                    tracing::error!(%error, "could not serialize memory; trying again");
                    // Who waits for memory may have to be told.
                    self.tables.budget.wake();
                    self.flush_signal.rest(RETRY_PAUSE);
                }
            }
        }
    }

    fn run_compact(&self) {
        while !self.is_stopping() {
            let compacted = self.compact_due();
            self.compact_trouble.note(&compacted);
            match compacted {
                Ok(true) => {}
                Ok(false) => self.compact_signal.wait(None),
                Err(error @ Error::DataLoss { .. }) => {
                    // The damaged file is left out from now on; if it is not
                    // known which that is, trying at once would help nobody.
                    tracing::error!(%error, "compaction met damage; the file stays as it is");
                    self.compact_signal.wait(Some(RETRY_PAUSE));
                }
                Err(error) => {
                    tracing::error!(%error, "could not compact; trying again");
                    self.compacted.notify_all();
                    self.compact_signal.rest(RETRY_PAUSE);
                }
            }
        }
    }

    fn until_age_flush(&self) -> Option<Duration> {
        let deadline = serialize::next_age_deadline(&self.tables)?;
        Some(deadline.saturating_sub(self.tables.world.clock.elapsed()))
    }

    /// Bytes of log kept for the sake of a txn and all after it.
    fn pinned_bytes(&self, txn: Txn) -> u64 {
        match &self.log {
            Log::Own(log) => {
                log.with_writer(|writer| writer.pinned_bytes(TABLES_STREAM, txn.raw()))
            }
            Log::External(external) => external.unflushed_bytes(),
        }
    }

    /// Flushes if a flush is due.
    pub fn flush_due(&self) -> Result<bool> {
        // Held before looking: a flush under way may be just what is due.
        let serializing = self.serializing.lock();
        let due = serialize::due(&self.tables, &|txn| self.pinned_bytes(txn));
        let Some((victim, reason)) = due else { return Ok(false) };
        let table = &victim.table.name;
        tracing::debug!(%table, group = victim.group, ?reason, "serializing");
        self.serialize_with(&serializing, &victim)
    }

    /// Flushes whatever frees most.
    pub fn flush_best(&self) -> Result<bool> {
        let serializing = self.serializing.lock();
        match serialize::best(&self.tables, &|txn| self.pinned_bytes(txn)) {
            Some(victim) => self.serialize_with(&serializing, &victim),
            None => Ok(false),
        }
    }

    pub fn serialize(&self, victim: &Victim) -> Result<bool> {
        self.serialize_with(&self.serializing.lock(), victim)
    }

    fn serialize_with(&self, one_at_a_time: &MutexGuard<'_, ()>, victim: &Victim) -> Result<bool> {
        if self.log.external().is_some() {
            // One chain alone would be ahead of the others after a crash.
            return self.flush_all(one_at_a_time);
        }
        let done = serialize::serialize(&self.tables, victim, self)?;
        if done {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
            self.compact_signal.raise();
        }
        Ok(done)
    }

    /// Compacts if a chain is long enough.
    pub fn compact_due(&self) -> Result<bool> {
        let Some(table) = choose::neediest(&self.tables) else { return Ok(false) };
        // Whoever is at it wakes this worker at the end.
        let Some(compacting) = table.compacting.try_lock() else { return Ok(false) };
        match choose::due(&table, &self.tables.options.compact) {
            Some((_, choice)) => self.compact(&compacting, &table, choice),
            None => Ok(false),
        }
    }

    /// Merges each chain of a table into one run, after a compaction that may
    /// be under way.
    pub fn compact_table(&self, table: &Table) -> Result<()> {
        let compacting = table.compacting.lock();
        // Numbers, not the version: a loop would hold on to it, with its memory.
        let tablets = table.version().tablets.len();
        let groups = table.version().memory.len();
        for tablet in 0..tablets {
            for group in 0..groups {
                if let Some(choice) = choose::whole_chain(table, tablet, group) {
                    self.compact(&compacting, table, choice)?;
                }
            }
        }
        drop(compacting);
        self.compact_signal.raise();
        Ok(())
    }

    /// Tells whether the chain was changed.
    fn compact(
        &self,
        _only_one: &MutexGuard<'_, ()>,
        table: &Table,
        choice: Choice,
    ) -> Result<bool> {
        compact(&self.tables, table, choice, self)
    }
}

impl Keeper for Shared {
    fn durable(&self) -> Txn {
        Shared::durable(self)
    }

    fn proceed(&self, table: &Table) -> bool {
        !self.is_stopping() && !table.is_dropped()
    }

    fn part_done(&self, last: bool) {
        self.counters.compaction_parts.fetch_add(1, Ordering::Relaxed);
        self.counters.compactions.fetch_add(last.into(), Ordering::Relaxed);
        self.compacted.notify_all();
    }
}

impl LogKeeper for Shared {
    fn seal(&self, table: &Table, group: usize) {
        let _no_writers = self.sequencer.lock();
        table.seal(group, &self.tables.budget);
    }

    fn wait_durable(&self, txn: Txn) -> Result<()> {
        self.log.wait_durable_idly(txn.raw())
    }

    fn durable(&self) -> Txn {
        Shared::durable(self)
    }

    /// A commit enters memory before the log, so whatever a segment holds is
    /// either in memory, or on disk, or newer than `latest` was.
    fn head_without(&self, flushed: &[Arc<MemoryFragment>]) -> Option<u64> {
        let latest = self.latest();
        let floor = self.tables.txn_min(flushed).unwrap_or(Txn::MAX).min(latest.next());
        let floors = [(TABLES_STREAM, floor.raw())];
        self.log.with_writer(|writer| writer.head_for(&floors))
    }

    fn release_below(&self, segment: u64) -> Result<()> {
        self.log.with_writer(|writer| writer.release_below(segment)).unwrap_or(Ok(()))
    }
}
