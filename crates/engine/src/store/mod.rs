//! A store: tables with one log, in one directory.

mod apply;
mod background;
mod checkpoint;
mod external;
mod keeping;
mod open;
mod stats;

use std::sync::Arc;

pub(crate) use open::{LOCK_FILE, lock_dir};
pub use open::{LOG_DIR, Resources};
pub use stats::StoreStats;

use crate::cell::commit::{Commit, TableId};
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, Configs};
use crate::conflict::{ConflictMemory, RowSlot};
use crate::error::{Error, Result};
use crate::log::Level;
use crate::merge::CellView;
use crate::place::{FirstCell, Place};
use crate::scan::{BatchLimits, Scan, ScanSpec, View};
use crate::schema::Schema;
use crate::sequencer::Sequencer;
use crate::snapshot::Snapshot;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::table::{GroupMemory, Table};
use crate::tables::{FRAGMENTS_DIR, Tables};
use crate::txn::Txn;
use crate::workers::serialize::Victim;
use crate::workers::signal::Signal;
use crate::workers::{choose, serialize};
use crate::world::{DirLock, Joiner, World};

/// How long `apply` waits before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The commit has its place in the order and is seen by `Latest` scans.
    Accepted,
    /// It is in the operating system's hands: it survives the process.
    Written,
    /// It is on disk: it survives the machine.
    Durable,
}

/// An open store. Dropping it stops the workers and closes the log.
pub struct Store {
    shared: Arc<Shared>,
    workers: Vec<Box<dyn Joiner>>,
}

/// What the callers, the scans and the workers of a store share.
pub(crate) struct Shared {
    pub tables: Tables,
    log: keeping::Log,
    /// The apply lock: held while a commit gets its txn and enters memory and
    /// the log queue.
    sequencer: Mutex<Sequencer>,
    /// The newest commit that is in memory and in the log's queue.
    latest: AtomicU64,
    conflicts: ConflictMemory,
    /// Everything before this incarnation.
    floor: Txn,
    flush_signal: Signal,
    compact_signal: Signal,
    flush_trouble: background::Trouble,
    compact_trouble: background::Trouble,
    /// Held by whoever serializes.
    serializing: Mutex<()>,
    /// Writers wait here for shorter chains.
    chains: Mutex<()>,
    compacted: Condvar,
    counters: stats::Counters,
    stopping: AtomicBool,
    closed: AtomicBool,
    _lock: Box<dyn DirLock>,
}

impl Shared {
    /// The newest commit that no crash can take back.
    pub fn durable(&self) -> Txn {
        Txn::from_raw(self.log.durable()).expect("the log's index is a txn")
    }

    /// The newest commit that has been accepted.
    pub fn latest(&self) -> Txn {
        let latest = self.latest.load(Ordering::Acquire);
        // The log may be done with a commit before `latest` says so.
        Txn::from_raw(latest).expect("only txns are stored").max(self.durable())
    }

    /// The same, not counting deletes of ranges.
    pub fn newest_in_slot(&self, row: RowSlot) -> Txn {
        self.conflicts.newest(row)
    }

    /// A txn at or above that of the row's last commit.
    pub fn newest_of(&self, table: &Table, row: RowSlot) -> Txn {
        self.conflicts.newest(row).max(table.range_deleted())
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Store {
    /// Makes a table. Durable when it returns.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<TableId> {
        self.check_open()?;
        Ok(self.shared.tables.create(name, Arc::new(schema))?.id)
    }

    /// Removes a table and everything in it. Its id is never used again.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        // A flush of all tables names them in one edit: none may go meanwhile.
        let _no_flush = self.shared.log.external().map(|_| self.shared.serializing.lock());
        let _no_writers = self.shared.sequencer.lock();
        let table = self.shared.tables.get(table)?;
        self.shared.tables.forget(&table)
    }

    /// Changes families and purge policies; the groups are fixed. The cells of
    /// a family that is dropped are gone, also if it is added again later.
    pub fn alter_table(&self, table: TableId, schema: Schema) -> Result<()> {
        self.alter_table_emptying(table, schema, &[])
    }

    /// As `alter_table`; families in `emptied` lose their cells though the
    /// table keeps them, as if they were dropped and added again in one step.
    pub fn alter_table_emptying(
        &self,
        table: TableId,
        schema: Schema,
        emptied: &[&[u8]],
    ) -> Result<()> {
        self.check_open()?;
        let _no_writers = self.shared.sequencer.lock();
        let table = self.shared.tables.get(table)?;
        let (old, now) = (&table.version().schema, self.shared.latest());
        let schema = Arc::new(schema.succeeding(old, emptied, now));
        let edit = ConfigEdit::SetSchema { table: table.id, schema: schema.clone() };
        self.shared.tables.edit(&[edit])?;
        table.change(|version| version.schema = schema);
        Ok(())
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.tables.named(name).map(|table| table.id)
    }

    /// Names and ids of all tables, by id.
    pub fn tables(&self) -> Vec<(TableId, String)> {
        self.shared.tables.all().values().map(|table| (table.id, table.name.clone())).collect()
    }

    pub fn schema(&self, table: TableId) -> Result<Arc<Schema>> {
        Ok(self.shared.tables.get(table)?.version().schema.clone())
    }

    /// Applies a commit, all of it or nothing, if no row it touches was
    /// written after `commit_max_txn`. Returns its txn.
    ///
    /// `DiskFull` refuses the commit before anything has happened. An error
    /// after the commit was accepted (a failed log) leaves open whether it
    /// survives; it stops the store.
    pub fn apply(&self, commit: &Commit, commit_max_txn: Txn, wait: Wait) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply(commit, commit_max_txn, wait)
    }

    /// Whether a commit of that size to a table would have to wait now before
    /// it is accepted. For callers that must not be kept waiting.
    pub fn would_wait(&self, table: TableId, bytes: usize) -> bool {
        self.shared.would_wait(table, bytes)
    }

    /// Waits until all commits up to `at_least` are durable (`Txn::MAX`: all
    /// so far). Returns the newest durable one.
    pub fn sync(&self, at_least: Txn) -> Result<Txn> {
        self.check_open()?;
        let target = at_least.min(self.shared.latest());
        self.shared.log.wait_durable(target.raw())?;
        Ok(self.shared.durable())
    }

    /// Makes all commits up to `txn` durable in this thread, unless another one
    /// is at it: then `None`, and `on_durable` tells when it is done.
    pub fn sync_if_free(&self, txn: Txn) -> Option<Result<()>> {
        self.shared.log.sync_if_free(txn.raw())
    }

    /// Calls back when all commits up to `txn` are durable, or never will be.
    pub fn on_durable(&self, txn: Txn, call: impl FnOnce(Result<()>) + Send + 'static) {
        self.shared.log.on_durable(txn.raw(), Box::new(call));
    }

    /// Holds everything durable so far readable, for a while.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.shared.tables.snapshots.hold(|| self.shared.durable()))
    }

    pub fn scan(&self, table: TableId, spec: ScanSpec) -> Result<Scan> {
        self.check_open()?;
        Scan::open(self.shared.clone(), table, spec)
    }

    /// Scans to the end in one go. Returns the oldest snapshot used.
    pub fn read(
        &self,
        table: TableId,
        spec: ScanSpec,
        mut sink: impl FnMut(&CellView<'_>),
    ) -> Result<Txn> {
        if let [range] = &spec.rows[..]
            && let Some(row) = range.single_row()
        {
            return self.read_row(table, row, &spec, sink);
        }
        let mut scan = self.scan(table, spec)?;
        let mut oldest = Txn::MAX;
        loop {
            let batch = scan.next_batch(BatchLimits::default(), &mut sink)?;
            oldest = oldest.min(batch.txn);
            if batch.done {
                return Ok(oldest);
            }
        }
    }

    /// Reads one row in one go, whatever rows `spec` names: the fastest way to
    /// a few cells. Returns the txn that the row was read at.
    pub fn read_row(
        &self,
        table: TableId,
        row: &[u8],
        spec: &ScanSpec,
        mut sink: impl FnMut(&CellView<'_>),
    ) -> Result<Txn> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        self.shared.read_row(&table, row, spec, &mut sink)
    }

    /// Reads the first cell of a row, the newest of its column, and tells where
    /// it is. With the place that an earlier read told, it is not looked for
    /// again as long as it is still there.
    pub fn read_first(
        &self,
        table: TableId,
        row: &[u8],
        view: &View,
        place: Option<&Place>,
        mut sink: impl FnMut(&CellView<'_>),
    ) -> Result<FirstCell> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        self.shared.read_first(&table, row, view, place, &mut sink)
    }

    /// About how many bytes the rows of a range take on disk.
    pub fn disk_bytes(&self, table: TableId, range: &RowRange) -> Result<u64> {
        Ok(self.shared.tables.get(table)?.version().disk_bytes(range))
    }

    /// How many bytes of a table are in memory only.
    pub fn memory_bytes(&self, table: TableId) -> Result<usize> {
        let version = self.shared.tables.get(table)?.version();
        Ok(version.memory.iter().map(GroupMemory::bytes).sum())
    }

    /// The newest durable and the newest accepted commit.
    pub fn progress(&self) -> (Txn, Txn) {
        (self.shared.durable(), self.shared.latest())
    }

    /// Why no commit will ever be accepted again, if that is so: the log has
    /// failed, and only opening the store anew tells what it holds.
    pub fn failure(&self) -> Option<Error> {
        self.shared.log.failed()
    }

    /// Writes all memory of a table to disk. A store without a log of its own
    /// writes that of all tables, at one index.
    pub fn flush(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        if self.shared.log.external().is_some() {
            return self.shared.flush_all(&self.shared.serializing.lock()).map(drop);
        }
        for group in 0..table.version().memory.len() {
            self.shared.serialize(&Victim { table: table.clone(), group })?;
        }
        Ok(())
    }

    /// Merges each chain of a table into one run. Waits for a compaction that
    /// is under way; what is flushed meanwhile is left out.
    pub fn compact(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        self.shared.compact_table(&table)
    }

    /// Does one piece of background work, in the caller's thread. Tells
    /// whether there was any. For stores opened without a spawner.
    pub fn step(&self) -> Result<bool> {
        self.check_open()?;
        self.shared.log.drive(Level::Durable)?;
        Ok(self.shared.flush_due()? || self.shared.compact_due()?)
    }

    /// The configuration as it is now.
    pub fn configs(&self) -> Result<Arc<Configs>> {
        self.shared.tables.configs()
    }

    pub fn stats(&self) -> StoreStats {
        self.shared.stats()
    }

    /// Makes everything durable, stops the workers and closes the log. What a
    /// store without a log of its own has in memory only is left to the caller's.
    pub fn close(mut self) -> Result<()> {
        self.shut_down()
    }

    fn check_open(&self) -> Result<()> {
        if self.shared.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    fn shut_down(&mut self) -> Result<()> {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.shared.stopping.store(true, Ordering::Release);
        let drained = self.shared.log.drive(Level::Durable);
        self.shared.log.stop();
        self.shared.flush_signal.end();
        self.shared.compact_signal.end();
        self.shared.compacted.notify_all();
        self.shared.tables.budget.wake();
        for worker in self.workers.drain(..) {
            worker.join();
        }
        drained?;
        self.shared.log.close()?;
        self.shared.tables.close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
    }
}
