//! A scan, read in batches.
//!
//! Each batch uses the newest version and snapshot of the table, and a scan
//! holds neither between batches. The exception is a row that spans batches:
//! its snapshot is held until its end, so that every row is read at a single
//! snapshot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::ranges::{clear_of_loss, join_ranges, tablet_of};
use super::spec::{BatchEnd, BatchLimits, RowMode, ScanSpec, View};
use crate::cell::commit::TableId;
use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::cell::rows::{RowRange, successor};
use crate::error::{Error, Printable, Result};
use crate::merge::{
    CellView, EntryPlace, Flow, Merge, PlaceNote, ReadBudget, ReadEnd, ReadRules, ReadState,
    Reader, Sink,
};
use crate::read::snapshot::Snapshot;
use crate::read::source::{Source, Sources};
use crate::schema::Schema;
use crate::store::Engine;
use crate::tablet::{Table, TableVersion};
use crate::txn::Txn;
use crate::write::RowSlot;

/// An open scan.
pub struct Scan {
    engine: Arc<Engine>,
    table: Arc<Table>,
    spec: Arc<ScanSpec>,
    /// The ranges left to read, in row order.
    ranges: VecDeque<RowRange>,
    now_micros: i64,
    rows_left: usize,
    cells_left: usize,
    pub(super) state: ReadState,
    /// The version number that `state` refers to.
    pub(super) state_version: u64,
    /// Set while a row has been partly read.
    row_pin: Option<RowPin>,
    /// The last row that a batch has completed.
    completed_row: Option<Vec<u8>>,
    /// In reverse, rows from this prefix on are too large to be buffered.
    pub(super) large_from: Option<Vec<u8>>,
    done: bool,
}

/// Keeps the rest of a row readable at its snapshot.
#[derive(Clone)]
struct RowPin {
    schema: Arc<Schema>,
    snapshot: Arc<Snapshot>,
    /// Whether the scan took the snapshot itself and must renew it.
    own: bool,
}

/// Maximum total time to read one row.
const ROW_AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// Maximum time until the next batch of a row, as a multiple of the maximum age
/// of a snapshot.
const ROW_IDLE_AGES: u32 = 4;

impl RowPin {
    /// Extends the snapshot after a batch has made progress.
    fn renew(&self) {
        if self.own {
            self.snapshot.extend(ROW_IDLE_AGES, ROW_AGE_MAX);
        }
    }
}

impl Scan {
    pub(crate) fn open(engine: Arc<Engine>, table: TableId, spec: ScanSpec) -> Result<Scan> {
        let table = engine.tables.map.get(table)?;
        let now_micros = engine.tables.world.clock.now_micros();
        let ranges = if spec.rows.is_empty() {
            VecDeque::from([RowRange::all()])
        } else {
            join_ranges(spec.rows.clone())
        };
        Ok(Scan {
            engine,
            table,
            rows_left: spec.rows_max.unwrap_or(usize::MAX),
            cells_left: spec.cells_max.unwrap_or(usize::MAX),
            spec: Arc::new(spec),
            ranges,
            now_micros,
            state: ReadState::default(),
            state_version: 0,
            row_pin: None,
            completed_row: None,
            large_from: None,
            done: false,
        })
    }

    /// Passes the next cells to `sink`, which may return a [`Flow`]. A batch
    /// that reaches its work limit may end without a cell although the scan is
    /// not done.
    pub fn next_batch<S, F>(&mut self, limits: BatchLimits, sink: &mut S) -> Result<BatchEnd>
    where
        S: FnMut(&CellView<'_>) -> F + ?Sized,
        F: Into<Flow>,
    {
        self.read_batch(limits, None, &mut |cell| sink(cell).into())
    }

    /// Like `next_batch`, but also passes the place of the first cell of each
    /// row, if it has one; the place is valid at the batch's txn.
    pub fn next_placed_batch<F: Into<Flow>>(
        &mut self,
        limits: BatchLimits,
        mut sink: impl FnMut(&CellView<'_>, Option<EntryPlace>) -> F,
    ) -> Result<BatchEnd> {
        let note = PlaceNote::default();
        self.read_batch(limits, Some(&note), &mut |cell| sink(cell, note.take()).into())
    }

    fn read_batch(
        &mut self,
        limits: BatchLimits,
        places: Option<&PlaceNote>,
        sink: &mut Sink<'_>,
    ) -> Result<BatchEnd> {
        if self.table.is_dropped() {
            return Err(Error::UnknownTable(self.table.name.clone()));
        }
        let (version, pin) = self.begin()?;
        let txn = pin.snapshot.txn();
        if self.done {
            return Ok(BatchEnd { txn, done: true, long_value: None });
        }
        let mut budget = ReadBudget {
            rows: self.rows_left,
            cells: limits.cells.max(1).min(self.cells_left),
            bytes: limits.bytes.max(1),
            work: limits.work.max(1),
            stopped: false,
            value_bytes: limits.value_bytes,
            long_value: None,
        };
        if budget.rows > 0 && budget.cells > 0 {
            let cells = budget.cells;
            let (spec, engine) = (self.spec.clone(), self.engine.clone());
            let rules = spec.rules(txn, self.now_micros, &pin.schema, &engine.tables.folds);
            let places = places.filter(|_| !pin.schema.ages());
            let pass =
                Pass { version: &version, rules: &rules, spec: &spec, mid_row: false, places };
            let mid_row = self.read_ranges(pass, &mut budget, sink)?;
            self.state_version = version.number;
            self.cells_left -= cells - budget.cells;
            self.rows_left = budget.rows;
            self.row_pin = mid_row.then_some(pin);
        }
        let exhausted = self.ranges.is_empty() && self.row_pin.is_none() || budget.stopped;
        self.done = exhausted || self.rows_left == 0 || self.cells_left == 0;
        if self.done {
            self.row_pin = None;
        }
        if let Some(pin) = &self.row_pin {
            pin.renew();
        }
        Ok(BatchEnd { txn, done: self.done, long_value: budget.long_value })
    }

    /// Whether the last batch ended inside a row, which may continue.
    pub fn mid_row(&self) -> bool {
        self.row_pin.is_some()
    }

    /// Returns the last completed row: this row and all before it, in scan
    /// direction, are done.
    pub fn completed_row(&self) -> Option<&[u8]> {
        self.completed_row.as_deref()
    }

    /// Returns the version and the snapshot to read: those of the partly read
    /// row, or new ones.
    fn begin(&self) -> Result<(Arc<TableVersion>, RowPin)> {
        if let Some(pin) = &self.row_pin {
            let version = self.table.pinned_version();
            pin.snapshot.check()?;
            self.check_unchanged(pin.snapshot.txn())?;
            return Ok((version, pin.clone()));
        }
        let snapshots = &self.engine.tables.snapshots;
        let (snapshot, own) = match &self.spec.view {
            View::Durable => (Arc::new(snapshots.hold(|| self.engine.durable())), true),
            View::Latest => (Arc::new(snapshots.hold(|| self.engine.latest())), true),
            View::At(snapshot) => (snapshot.clone(), false),
        };
        let version = self.table.pinned_version();
        snapshot.check()?;
        let schema = version.schema.clone();
        Ok((version, RowPin { schema, snapshot, own }))
    }

    fn check_unchanged(&self, snapshot: Txn) -> Result<()> {
        if self.spec.row_mode != RowMode::Unchanged {
            return Ok(());
        }
        let row = self.state.row().expect("a pinned row has been begun");
        if self.engine.newest_of(&self.table, RowSlot::of(self.table.id, row)) > snapshot {
            return Err(Error::ScanConflict { row: Printable::from(row) });
        }
        Ok(())
    }

    /// Reads one range after another until the budget is spent. Returns whether
    /// it stopped inside a row.
    fn read_ranges(
        &mut self,
        mut pass: Pass<'_>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let groups = pass.spec.groups(pass.version);
        while let Some(range) = self.next_range(pass.version)? {
            let fill_cache = range.single_row().is_some() || self.fits_cache(pass.version, &range);
            let options = pass.spec.cursor_options(pass.rules.schema, fill_cache);
            let tablet = tablet_of(pass.version, &range, self.spec.reverse);
            let sources = Sources::of_tablet(pass.version, tablet, &groups, &range, &options)?;
            let mut merge = Merge::new(sources.cursors);
            let end = if self.spec.reverse {
                self.read_reverse(
                    &mut pass,
                    &mut merge,
                    &sources.range_tombstones,
                    &range,
                    budget,
                    sink,
                )?
            } else {
                self.read_forward(
                    &mut pass,
                    &mut merge,
                    &sources.range_tombstones,
                    &range,
                    budget,
                    sink,
                )?
            };
            if end == ReadEnd::Budget {
                return Ok(pass.mid_row);
            }
            self.finish_range(&range);
            // Seeking each source is work too, whatever it finds.
            budget.work = budget.work.saturating_sub(WORK_PER_RANGE);
            if budget.spent() {
                break;
            }
        }
        Ok(false)
    }

    fn read_forward(
        &mut self,
        pass: &mut Pass<'_>,
        merge: &mut Merge<Source>,
        range_tombstones: &[Arc<dyn RangeTombstoneLookup>],
        range: &RowRange,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let bound = range.end.as_deref().map(key::row_start);
        let begun = self.state.row().is_some();
        let mut reader = Reader {
            merge,
            state: &mut self.state,
            rules: pass.rules,
            range_tombstones,
            places: pass.places,
            once: false,
        };
        if begun {
            reader.resume(pass.version.number == self.state_version)?;
        } else {
            reader.merge.seek(&key::row_start(&range.start))?;
        }
        let end = reader.read(bound.as_deref(), budget, sink)?;
        if end == ReadEnd::Budget {
            self.stop_inside(pass, merge, budget);
        }
        Ok(end)
    }

    /// Handles the end of the budget, which may fall inside a row or between
    /// two.
    pub(super) fn stop_inside(
        &mut self,
        pass: &mut Pass<'_>,
        merge: &Merge<Source>,
        budget: &mut ReadBudget,
    ) {
        let Some(row) = self.state.row().map(<[u8]>::to_vec) else { return };
        if self.state.row_continues(merge) {
            pass.mid_row = true;
            return;
        }
        self.state.end_row(budget);
        self.state = ReadState::default();
        if self.spec.reverse {
            self.shrink_to_before(row);
        } else {
            let range = self.ranges.front_mut().expect("a range is being read");
            range.start = successor(&row);
            self.completed_row = Some(row);
        }
    }

    /// Marks the row and all after it as done, in a reverse scan.
    pub(super) fn shrink_to_before(&mut self, row: Vec<u8>) {
        self.completed_row = Some(row.clone());
        self.ranges.back_mut().expect("a range is being read").end = Some(row);
    }

    /// Returns the next range of rows to read: within one range of the scan and
    /// one tablet, and clear of lost fragments.
    fn next_range(&mut self, version: &TableVersion) -> Result<Option<RowRange>> {
        let next_of = |ranges: &VecDeque<RowRange>, reverse: bool| {
            if reverse { ranges.back().cloned() } else { ranges.front().cloned() }
        };
        while let Some(range) = next_of(&self.ranges, self.spec.reverse) {
            if range.is_empty() {
                if self.spec.reverse {
                    self.ranges.pop_back()
                } else {
                    self.ranges.pop_front()
                };
                continue;
            }
            let tablet = tablet_of(version, &range, self.spec.reverse);
            let range = range.intersection(&version.tablets[tablet].rows);
            let groups = self.spec.groups(version);
            return clear_of_loss(version, tablet, &groups, range, self.spec.reverse).map(Some);
        }
        Ok(None)
    }

    /// Marks a range as completely read.
    fn finish_range(&mut self, read: &RowRange) {
        if self.spec.reverse {
            let range = self.ranges.back_mut().expect("a range is being read");
            range.end = Some(read.start.clone());
        } else {
            let range = self.ranges.front_mut().expect("a range is being read");
            match &read.end {
                Some(end) => range.start = end.clone(),
                None => *range = RowRange::new("", ""),
            }
        }
    }

    /// Whether the rest of the scan is small enough to be cached; a large one
    /// would evict the working set of others.
    fn fits_cache(&self, version: &TableVersion, range: &RowRange) -> bool {
        const CACHE_SHARE_MAX: u64 = 4;
        let bytes = version.disk_bytes(range);
        bytes <= self.engine.tables.resources.cache.capacity_bytes() / CACHE_SHARE_MAX
    }
}

/// Cost of starting a range, in entries examined.
const WORK_PER_RANGE: usize = 16;

/// The context of one batch.
pub(super) struct Pass<'a> {
    pub(super) version: &'a TableVersion,
    pub(super) rules: &'a ReadRules<'a>,
    spec: &'a ScanSpec,
    /// Whether reading stopped inside a row.
    pub(super) mid_row: bool,
    /// Receives the places of cells.
    pub(super) places: Option<&'a PlaceNote>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cell::commit::{CommitBuilder, TimeRange};
    use crate::durability::Durability;
    use crate::merge::{StepOf, steps};
    use crate::options::Options;
    use crate::schema::{Family, Schema};
    use crate::store::Store;
    use crate::world::sim::SimFiles;
    use crate::world::{ManualClock, SeededRandom, World};

    /// Creates a column with `count` cells, each preceded by a delete of one
    /// timestamp: that of the cell or another.
    fn deleted_times(count: i64, of_cells: bool) -> (Store, TableId) {
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table("t", schema).unwrap();
        for at in 0..count {
            let deleted = if of_cells { 2 * at } else { 2 * at + 1 };
            let times = TimeRange { min: deleted, max: deleted };
            let mut delete = CommitBuilder::new();
            delete.table(table).row(b"r").delete_cells(b"f", b"q", times);
            let mut set = CommitBuilder::new();
            set.table(table).row(b"r").set(b"f", b"q", 2 * at, b"v");
            for commit in [delete.finish(), set.finish()] {
                store.apply(&commit, Txn::MAX, Durability::Durable).unwrap();
            }
        }
        (store, table)
    }

    #[test]
    fn many_deletes_of_times_in_one_column_are_not_read_again_for_each_batch() {
        for reverse in [false, true] {
            let cost = |count: i64| {
                let (store, table) = deleted_times(count, false);
                let spec = ScanSpec { reverse, ..ScanSpec::default() };
                let mut scan = store.scan(table, spec).unwrap();
                let (before, mut cells) = (steps(StepOf::Merge), 0);
                let limits = BatchLimits { cells: 4, ..BatchLimits::default() };
                while !scan.next_batch(limits, &mut |_: &CellView<'_>| cells += 1).unwrap().done {}
                assert_eq!(cells, count);
                steps(StepOf::Merge) - before
            };
            let (few, many) = (cost(400), cost(800));
            assert!(many <= 2 * few + 64 && few <= 400 * 8, "{few} steps, then {many}");
        }
    }

    #[test]
    fn a_row_continues_after_its_deletes_were_compacted_away_between_two_batches() {
        let (store, table) = deleted_times(40, true);
        let mut scan = store.scan(table, ScanSpec::default()).unwrap();
        let limits = BatchLimits { cells: 4, ..BatchLimits::default() };
        let mut times = Vec::new();
        loop {
            let end = scan.next_batch(limits, &mut |cell: &CellView<'_>| {
                times.push(cell.timestamp);
            });
            if end.unwrap().done {
                break;
            }
            store.flush(table).unwrap();
            store.compact(table).unwrap();
        }
        assert_eq!(times, (0..40).rev().map(|at| 2 * at).collect::<Vec<_>>());
    }
}
