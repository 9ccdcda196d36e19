//! A store: tables with one log, in one directory.

mod admission;
mod apply;
mod background;
mod checkpoint;
mod external;
mod keeping;
mod open;
mod stats;
mod waiters;

use std::sync::Arc;

pub use crate::workers::claims::Work;
pub use crate::workers::troubles::Trouble;
pub use admission::{Admission, Permit};
pub(crate) use open::{LOCK_FILE, lock_dir};
pub use open::{LOG_DIR, Resources};
pub use stats::StoreStats;

use crate::cell::commit::{Commit, TableId};
use crate::cell::rows::RowRange;
use crate::config::{ConfigEdit, Configs};
use crate::conflict::{ConflictMemory, RowSlot};
use crate::error::{Error, Result};
use crate::log::Level;
use crate::merge::{CellView, Flow};
use crate::place::{FirstCell, Place};
use crate::scan::{BatchLimits, Scan, ScanSpec, View};
use crate::schema::Schema;
use crate::sequencer::Sequencer;
use crate::sizes::TableSizes;
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::table::{GroupMemory, Table};
use crate::tables::{FRAGMENTS_DIR, Tables};
use crate::txn::Txn;
use crate::workers::claims::Claims;
use crate::workers::serialize::Victim;
use crate::workers::troubles::Troubles;
use crate::workers::{choose, serialize};
use crate::world::{DirLock, Joiner, World};
use std::sync::atomic::AtomicUsize;

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
    claims: Claims,
    troubles: Troubles,
    /// Threads in each lane of the pool, and how many of them do long work.
    lane_threads: usize,
    urgent_merges: AtomicUsize,
    large_merges: AtomicUsize,
    /// Commits that wait to be admitted.
    waiters: Arc<waiters::Waiters>,
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

    /// Refuses work when the store has failed for good.
    fn check_failure(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Why no commit will ever be accepted again, if that is so.
    fn failure(&self) -> Option<Error> {
        self.log.failed().or_else(|| self.tables.failure())
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
        let external = self.shared.log.external();
        let _no_flush = external.map(|_| self.shared.claims.take(Work::FlushAll));
        let _no_writers = self.shared.sequencer.lock();
        let table = self.shared.tables.get(table)?;
        self.shared.tables.forget(&table)?;
        self.shared.troubles.forget(table.id);
        // Writers that wait for its chains are told that it is gone.
        self.shared.waiters.wake(waiters::Stage::Chains);
        Ok(())
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
        if self.shared.log.external().is_some() {
            // A commit that is applied again after a crash gets a new txn, and
            // would count as written after the change.
            self.flush(table)?;
        }
        let _no_writers = self.shared.sequencer.lock();
        let table = self.shared.tables.get(table)?;
        let (old, now) = (&table.version().schema, self.shared.latest());
        let schema = Arc::new(schema.succeeding(old, emptied, now));
        let edit = ConfigEdit::SetSchema { table: table.id, schema: schema.clone() };
        self.shared.tables.edit(&[edit])?;
        table.change(|version| version.schema = schema.clone());
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

    /// As `apply`, for a commit that was admitted: never waits for memory, for
    /// the log or for compaction. `commit` is the one that the permit is for.
    pub fn apply_admitted(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
    ) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply_admitted(permit, commit, commit_max_txn, None)
    }

    /// As `apply_admitted`, if the commit writes `table` under this schema:
    /// `SchemaChanged` if the table was altered since [`Store::schema`]
    /// returned it.
    pub fn apply_under_schema(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
        table: TableId,
        schema: &Arc<Schema>,
    ) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply_admitted(permit, commit, commit_max_txn, Some((table, schema)))
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
    /// a few cells. The sink may return a [`Flow`] or a `ControlFlow` to skip
    /// cells or to stop the read. Returns the txn that the row was read at.
    pub fn read_row<F: Into<Flow>>(
        &self,
        table: TableId,
        row: &[u8],
        spec: &ScanSpec,
        mut sink: impl FnMut(&CellView<'_>) -> F,
    ) -> Result<Txn> {
        let whole = self.try_read_row(table, row, spec, usize::MAX, &mut sink)?;
        Ok(whole.expect("a read without a limit ends at the end of its row"))
    }

    /// The same for a caller that must not be kept for long: the read ends
    /// when it has done `work_max`, as [`BatchLimits::work`] counts it, also
    /// over cells that are deleted or purged. `None` if it ended like that; a
    /// [`Scan`] of the row reads it in batches.
    pub fn try_read_row<F: Into<Flow>>(
        &self,
        table: TableId,
        row: &[u8],
        spec: &ScanSpec,
        work_max: usize,
        mut sink: impl FnMut(&CellView<'_>) -> F,
    ) -> Result<Option<Txn>> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        self.shared.read_row(&table, row, spec, work_max, &mut |cell| sink(cell).into())
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
        self.shared.read_first(&table, row, view, place, &mut |cell| {
            sink(cell);
            Flow::Continue
        })
    }

    /// About how many bytes the rows of a range take on disk.
    pub fn disk_bytes(&self, table: TableId, range: &RowRange) -> Result<u64> {
        Ok(self.shared.tables.get(table)?.version().disk_bytes(range))
    }

    /// The sizes of a table's parts, all at one moment.
    pub fn sizes(&self, table: TableId) -> Result<TableSizes> {
        Ok(TableSizes::new(self.shared.tables.get(table)?.pinned_version()))
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

    /// Why the store does not work as it should, if that is so: for health
    /// checks. `Stopped`: the log or the manifest has failed, no commit will be
    /// accepted again, and only opening the store anew tells what it holds. Any
    /// other error: memory cannot be flushed for some seconds now; commits are
    /// refused once memory is full, and flushing is tried again each second. A
    /// full disk is not reported here: the store recovers by itself.
    pub fn failure(&self) -> Option<Error> {
        let flush = || self.shared.troubles.of_flush();
        let flush = || flush().filter(|error| !matches!(error, Error::DiskFull { .. }));
        self.shared.failure().or_else(flush)
    }

    /// Background work that failed and was not done since, for metrics and the
    /// status page: a flush, or the compaction of a chain, which may be due to
    /// one damaged file.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.shared.troubles.all()
    }

    /// Writes all memory of a table to disk. A store without a log of its own
    /// writes that of all tables, at one index.
    pub fn flush(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        if self.shared.log.external().is_some() {
            let claim = self.shared.claims.take(Work::FlushAll);
            return self.shared.flush_all(&claim).map(drop);
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
        self.shared.claims.urgent.end();
        self.shared.claims.background.end();
        self.shared.waiters.wake_all();
        self.shared.waiters.end_timer();
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
