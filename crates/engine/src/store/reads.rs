//! The reads of a store: snapshots, scans, single rows and sizes.

use std::sync::Arc;

use super::handle::Store;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::merge::{CellView, Flow};
use crate::read::{BatchLimits, FirstCell, Place, Scan, ScanSpec, Snapshot, View};
use crate::tablet::{GroupMemory, TableSizes};
use crate::txn::Txn;
use crate::world::WaitScope;

impl Store {
    /// Takes a snapshot of everything durable so far. It is valid for a limited
    /// time.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.engine.tables.snapshots.hold(|| self.engine.durable()))
    }

    pub fn scan(&self, table: TableId, spec: ScanSpec) -> Result<Scan> {
        self.check_open()?;
        Scan::open(self.engine.clone(), table, spec)
    }

    /// Scans to the end. Returns the oldest snapshot used.
    pub fn read(
        &self,
        table: TableId,
        spec: ScanSpec,
        mut sink: impl FnMut(&CellView<'_>),
    ) -> Result<Txn> {
        let _wait = WaitScope::enter();
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
        let table = self.engine.tables.map.get(table)?;
        self.engine.read_row(&table, row, spec, work_max, &mut |cell| sink(cell).into())
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
        let table = self.engine.tables.map.get(table)?;
        self.engine.read_first(&table, row, view, place, &mut |cell| {
            sink(cell);
            Flow::Continue
        })
    }

    /// Returns the approximate size on disk of a range of rows.
    pub fn disk_bytes(&self, table: TableId, range: &RowRange) -> Result<u64> {
        Ok(self.engine.tables.map.get(table)?.version().disk_bytes(range))
    }

    /// Returns the sizes of a table's parts, at one point in time.
    pub fn sizes(&self, table: TableId) -> Result<TableSizes> {
        Ok(TableSizes::new(self.engine.tables.map.get(table)?.pinned_version()))
    }

    /// Returns the number of bytes of a table that are only in memory.
    pub fn memory_bytes(&self, table: TableId) -> Result<usize> {
        let version = self.engine.tables.map.get(table)?.version();
        Ok(version.memory.iter().map(GroupMemory::bytes).sum())
    }
}
