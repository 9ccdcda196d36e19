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
use crate::fragment::ReadAhead;
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
use crate::world::Miss;
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
    /// What was fetched ahead, if the files are outside the directory.
    ahead: Option<Arc<ReadAhead>>,
    /// What was missed at the current position, the last one last. Held, so that it is
    /// still here when the batch is read again.
    misses: Vec<Miss>,
}

/// Keeps the rest of a row readable at its snapshot.
#[derive(Clone)]
struct RowPin {
    schema: Arc<Schema>,
    snapshot: Arc<Snapshot>,
    /// Whether the scan took the snapshot itself and must renew it.
    own: bool,
}

/// Maximum number of fetches that a scan holds while it cannot continue.
const MISSES_MAX: usize = 256;
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
        spec.reads_hidden(&table.version().schema)?;
        let now_micros = engine.tables.world.clock.now_micros();
        let is_read_ahead = engine.tables.fragments.remote().is_some() && !spec.reverse;
        let ahead = is_read_ahead.then(Arc::default);
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
            ahead,
            misses: Vec::new(),
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
            return Ok(BatchEnd { txn, done: true, long_value: None, missed: false });
        }
        let mut budget = ReadBudget {
            rows: self.rows_left,
            cells: limits.cells.max(1).min(self.cells_left),
            bytes: limits.bytes.max(1),
            work: limits.work.max(1),
            stopped: false,
            value_bytes: limits.value_bytes,
            long_value: None,
            miss: None,
        };
        let before = (!self.misses.is_empty()).then(|| self.position());
        if budget.rows > 0 && budget.cells > 0 {
            let cells = budget.cells;
            let (spec, engine) = (self.spec.clone(), self.engine.clone());
            let rules = spec.rules(txn, self.now_micros, &pin.schema, &engine.tables.folds);
            let places = places.filter(|_| !pin.schema.ages());
            let pass =
                Pass { version: &version, rules: &rules, spec: &spec, mid_row: false, places };
            let sample = engine.begin_sample();
            let first = sample.and_then(|_| self.next_row(&version));
            let mid_row = self.read_ranges(pass, &mut budget, sink)?;
            if let Some(row) = first {
                engine.end_sample(sample, &self.table, &row);
            }
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
        // What was fetched for an earlier position is no longer needed.
        if budget.miss.is_none() || before.is_some_and(|before| before != self.position()) {
            self.misses.clear();
        }
        let missed = budget.miss.is_some();
        if self.misses.len() == MISSES_MAX {
            self.misses.remove(0);
        }
        self.misses.extend(budget.miss);
        Ok(BatchEnd { txn, done: self.done, long_value: budget.long_value, missed })
    }

    /// Returns how far the scan is: what it has returned and the rows that are left. The
    /// last key says nothing about it, because a batch that continues a row reads the
    /// operands of a cell from the first one again.
    fn position(&self) -> (usize, Option<Vec<u8>>, Option<RowRange>, usize) {
        let range = if self.spec.reverse { self.ranges.back() } else { self.ranges.front() };
        (self.cells_left, self.completed_row.clone(), range.cloned(), self.ranges.len())
    }

    /// Returns what the last batch missed, if that ended it.
    pub fn miss(&self) -> Option<&Miss> {
        self.misses.last()
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
        if self.engine.newest_of(&self.table, row, RowSlot::of(self.table.id, row)) > snapshot {
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
        let mut begun = false;
        loop {
            let range = match self.next_range(pass.version) {
                // The batch ends with the rows before; the next one fails.
                Err(Error::TabletNotLoaded(_)) if begun => break,
                range => range?,
            };
            let Some(range) = range else { break };
            let is_first = !std::mem::replace(&mut begun, true);
            let fill_cache = range.single_row().is_some() || self.fits_cache(pass.version, &range);
            let ahead = self.ahead.as_ref().filter(|_| range.single_row().is_none());
            let options = pass.spec.cursor_options(pass.rules.schema, fill_cache, ahead);
            let tablet = tablet_of(pass.version, &range, self.spec.reverse);
            match tablet.check_snapshot(pass.rules.snapshot) {
                Ok(()) => {}
                // The batch ends with the rows before; the next one has a newer snapshot.
                Err(_) if !is_first => break,
                Err(error) => return Err(error),
            }
            let sources = match Sources::of_tablet(pass.version, tablet, &groups, &range, &options)
            {
                // A lost fragment was found: the rows before it can be read.
                Err(Error::DataLoss { .. })
                    if self.next_range(pass.version)?.as_ref() != Some(&range) =>
                {
                    continue;
                }
                Err(Error::NotLocal(miss)) => return Ok(self.interrupted(budget, miss)),
                sources => sources?,
            };
            let mut merge = Merge::new(sources.cursors);
            let end = if self.spec.reverse {
                self.read_reverse(
                    &mut pass,
                    &mut merge,
                    &sources.range_tombstones,
                    &range,
                    budget,
                    sink,
                )
            } else {
                self.read_forward(
                    &mut pass,
                    &mut merge,
                    &sources.range_tombstones,
                    &range,
                    budget,
                    sink,
                )
            };
            let end = match end {
                Err(Error::NotLocal(miss)) => return Ok(self.interrupted(budget, miss)),
                end => end?,
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

    /// Ends a batch before bytes that are not on this machine. Returns whether it stopped
    /// inside a row.
    fn interrupted(&self, budget: &mut ReadBudget, miss: Miss) -> bool {
        budget.miss = Some(miss);
        self.state.row().is_some()
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
        // After a miss, the merge does not tell.
        if budget.miss.is_some() || self.state.row_continues(merge) {
            pass.mid_row = true;
            // The rows already read may be in another tablet by the next batch.
            if self.spec.reverse {
                let range = self.ranges.back_mut().expect("a range is being read");
                range.end = Some(successor(&row));
            } else {
                self.ranges.front_mut().expect("a range is being read").start = row;
            }
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
            let range = range.intersection(&tablet.rows);
            tablet.check_read(&self.table, &range.start)?;
            let groups = self.spec.groups(version);
            return clear_of_loss(tablet, &groups, range, self.spec.reverse).map(Some);
        }
        Ok(None)
    }

    /// Returns a row of the tablet in which reading continues.
    fn next_row(&self, version: &TableVersion) -> Option<Vec<u8>> {
        let reverse = self.spec.reverse;
        let range = if reverse { self.ranges.back() } else { self.ranges.front() }?;
        let tablet = tablet_of(version, range, reverse);
        Some(range.start.clone().max(tablet.rows.start.clone()))
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
