//! A store: tables that share one log, in one directory.

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

/// The durability that `apply` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The commit has its txn and is visible to `Latest` scans.
    Accepted,
    /// The commit is in the page cache: it survives a crash of the process.
    Written,
    /// The commit is synced: it survives a power failure.
    Durable,
}

/// An open store. Dropping it stops the workers and closes the log.
pub struct Store {
    shared: Arc<Shared>,
    workers: Vec<Box<dyn Joiner>>,
}

/// State shared by the callers, scans and workers of a store.
pub(crate) struct Shared {
    pub tables: Tables,
    log: keeping::Log,
    /// The apply lock: held while a commit gets its txn and enters memory and
    /// the log queue.
    sequencer: Mutex<Sequencer>,
    /// The newest commit in memory and in the log's queue.
    latest: AtomicU64,
    conflicts: ConflictMemory,
    /// All commits of earlier incarnations are below this txn.
    floor: Txn,
    claims: Claims,
    troubles: Troubles,
    /// Number of threads per lane of the pool, and how many of them run long
    /// merges.
    lane_threads: usize,
    urgent_merges: AtomicUsize,
    large_merges: AtomicUsize,
    /// Commits waiting for admission.
    waiters: Arc<waiters::Waiters>,
    counters: stats::Counters,
    stopping: AtomicBool,
    closed: AtomicBool,
    _lock: Box<dyn DirLock>,
}

impl Shared {
    /// Returns the newest commit that survives a crash.
    pub fn durable(&self) -> Txn {
        Txn::from_raw(self.log.durable()).expect("the log's index is a txn")
    }

    /// Returns the newest accepted commit.
    pub fn latest(&self) -> Txn {
        let latest = self.latest.load(Ordering::Acquire);
        // A commit can become durable before `latest` is updated.
        Txn::from_raw(latest).expect("only txns are stored").max(self.durable())
    }

    /// Returns a txn at or above that of the slot's last commit, ignoring
    /// deletes of ranges.
    pub fn newest_in_slot(&self, row: RowSlot) -> Txn {
        self.conflicts.newest(row)
    }

    /// Returns a txn at or above that of the row's last commit.
    pub fn newest_of(&self, table: &Table, row: RowSlot) -> Txn {
        self.conflicts.newest(row).max(table.range_deleted())
    }

    /// Returns an error if the store has failed permanently.
    fn check_failure(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns the reason if the store has failed permanently.
    fn failure(&self) -> Option<Error> {
        self.log.failed().or_else(|| self.tables.failure())
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Store {
    /// Creates a table. The table is durable on return.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<TableId> {
        self.check_open()?;
        Ok(self.shared.tables.create(name, Arc::new(schema))?.id)
    }

    /// Drops a table and its data. Table ids are never reused.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        // A flush of all tables names them in one edit: none may be dropped
        // meanwhile.
        let external = self.shared.log.external();
        let _no_flush = external.map(|_| self.shared.claims.take(Work::FlushAll));
        let _no_writers = self.shared.sequencer.lock();
        let table = self.shared.tables.get(table)?;
        self.shared.tables.forget(&table)?;
        self.shared.troubles.forget(table.id);
        // Writers waiting for its chains now fail.
        self.shared.waiters.wake(waiters::Stage::Chains);
        Ok(())
    }

    /// Changes families and purge policies; groups cannot change. Dropping a
    /// family deletes its cells, even if the family is added again later.
    pub fn alter_table(&self, table: TableId, schema: Schema) -> Result<()> {
        self.alter_table_emptying(table, schema, &[])
    }

    /// Like `alter_table`, but also deletes the cells of the families in
    /// `emptied`, as if each had been dropped and added again in one step.
    pub fn alter_table_emptying(
        &self,
        table: TableId,
        schema: Schema,
        emptied: &[&[u8]],
    ) -> Result<()> {
        self.check_open()?;
        if self.shared.log.external().is_some() {
            // A commit that is replayed after a crash gets a new txn and would
            // count as written after the change.
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

    /// Returns the id of the named table.
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.shared.tables.named(name).map(|table| table.id)
    }

    /// Returns the ids and names of all tables, ordered by id.
    pub fn tables(&self) -> Vec<(TableId, String)> {
        self.shared.tables.all().values().map(|table| (table.id, table.name.clone())).collect()
    }

    pub fn schema(&self, table: TableId) -> Result<Arc<Schema>> {
        Ok(self.shared.tables.get(table)?.version().schema.clone())
    }

    /// Applies a commit atomically, unless a row that it touches was written
    /// after `commit_max_txn`. Returns its txn.
    ///
    /// `DiskFull` rejects the commit without side effects. If the log fails
    /// after the commit was accepted, the commit may or may not survive, and
    /// the store stops.
    pub fn apply(&self, commit: &Commit, commit_max_txn: Txn, wait: Wait) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply(commit, commit_max_txn, wait)
    }

    /// Like `apply`, for an admitted commit: never waits for memory, the log or
    /// compaction. `commit` must be the one that the permit was issued for.
    pub fn apply_admitted(
        &self,
        permit: Permit<'_>,
        commit: &Commit,
        commit_max_txn: Txn,
    ) -> Result<Txn> {
        self.check_open()?;
        self.shared.apply_admitted(permit, commit, commit_max_txn, None)
    }

    /// Like `apply_admitted`, but fails with `SchemaChanged` if `table` was
    /// altered since [`Store::schema`] returned `schema`.
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
    /// commits so far). Returns the newest durable txn.
    pub fn sync(&self, at_least: Txn) -> Result<Txn> {
        self.check_open()?;
        let target = at_least.min(self.shared.latest());
        self.shared.log.wait_durable(target.raw())?;
        Ok(self.shared.durable())
    }

    /// Makes all commits up to `txn` durable on this thread. Returns `None` if
    /// another thread is already syncing; use `on_durable` to wait for it.
    pub fn sync_if_free(&self, txn: Txn) -> Option<Result<()>> {
        self.shared.log.sync_if_free(txn.raw())
    }

    /// Calls `call` once all commits up to `txn` are durable, or can no longer
    /// become durable.
    pub fn on_durable(&self, txn: Txn, call: impl FnOnce(Result<()>) + Send + 'static) {
        self.shared.log.on_durable(txn.raw(), Box::new(call));
    }

    /// Takes a snapshot of everything durable so far. It is valid for a limited
    /// time.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.shared.tables.snapshots.hold(|| self.shared.durable()))
    }

    pub fn scan(&self, table: TableId, spec: ScanSpec) -> Result<Scan> {
        self.check_open()?;
        Scan::open(self.shared.clone(), table, spec)
    }

    /// Scans to the end. Returns the oldest snapshot used.
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

    /// Reads one row in one call, ignoring the rows in `spec`: the fastest way
    /// to read a few cells. The sink may return a [`Flow`] or a `ControlFlow`
    /// to skip cells or to stop. Returns the txn at which the row was read.
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

    /// Like `read_row`, for callers with a bound on latency: stops after
    /// `work_max` units of work, counted like [`BatchLimits::work`], which
    /// include deleted and purged cells. Returns `None` if it stopped early;
    /// read such a row with a [`Scan`] in batches.
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

    /// Reads the first cell of a row, which is the newest of its column, and
    /// returns its place. Passing the place from an earlier read skips the
    /// lookup while the cell is still there.
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

    /// Returns the approximate size on disk of a range of rows.
    pub fn disk_bytes(&self, table: TableId, range: &RowRange) -> Result<u64> {
        Ok(self.shared.tables.get(table)?.version().disk_bytes(range))
    }

    /// Returns the sizes of a table's parts, at one point in time.
    pub fn sizes(&self, table: TableId) -> Result<TableSizes> {
        Ok(TableSizes::new(self.shared.tables.get(table)?.pinned_version()))
    }

    /// Returns the number of bytes of a table that are only in memory.
    pub fn memory_bytes(&self, table: TableId) -> Result<usize> {
        let version = self.shared.tables.get(table)?.version();
        Ok(version.memory.iter().map(GroupMemory::bytes).sum())
    }

    /// Returns the newest durable and the newest accepted txn.
    pub fn progress(&self) -> (Txn, Txn) {
        (self.shared.durable(), self.shared.latest())
    }

    /// Returns why the store is unhealthy, if it is; for health checks.
    /// `Stopped`: the log or the manifest failed, no more commits are accepted,
    /// and what the store holds is known only after reopening it. Any other
    /// error: flushing has failed for some seconds. It is retried every second;
    /// commits are rejected once memory is full. A full disk is not reported:
    /// the store recovers from it without a restart.
    pub fn failure(&self) -> Option<Error> {
        let flush = || self.shared.troubles.of_flush();
        let flush = || flush().filter(|error| !matches!(error, Error::DiskFull { .. }));
        self.shared.failure().or_else(flush)
    }

    /// Returns the background work that failed and has not succeeded since: a
    /// flush, or the compaction of a chain, possibly because of one damaged
    /// file. For metrics and the status page.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.shared.troubles.all()
    }

    /// Flushes a table's memory to disk. A store without its own log flushes
    /// all tables at one index.
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

    /// Compacts each chain of a table into one run. Waits for a running
    /// compaction; skips runs flushed in the meantime.
    pub fn compact(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        let table = self.shared.tables.get(table)?;
        self.shared.compact_table(&table)
    }

    /// Does one unit of background work on the caller's thread. Returns whether
    /// there was any. For stores opened without a spawner.
    pub fn step(&self) -> Result<bool> {
        self.check_open()?;
        self.shared.log.drive(Level::Durable)?;
        Ok(self.shared.flush_due()? || self.shared.compact_due()?)
    }

    /// Returns the current config.
    pub fn configs(&self) -> Result<Arc<Configs>> {
        self.shared.tables.configs()
    }

    pub fn stats(&self) -> StoreStats {
        self.shared.stats()
    }

    /// Makes everything durable, stops the workers and closes the log. In a
    /// store without its own log, data that is only in memory must be recovered
    /// from the caller's log.
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
