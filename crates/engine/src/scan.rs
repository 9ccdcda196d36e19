//! Scans: cells of a table in order, batch by batch.
//!
//! A scan holds on to nothing between two batches. Each batch takes the
//! table's newest version and snapshot, except that a row is read at one
//! snapshot from its first cell to its last, however many batches that takes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cell::commit::{TableId, TimeRange};
use crate::cell::key;
use crate::cell::rows::{RowRange, successor};
use crate::cell::span::Spans;
use crate::conflict::RowSlot;
use crate::error::{Error, Printable, Result};
use crate::fragment::CursorOptions;
use crate::merge::{Columns, Merge, ReadBudget, ReadEnd, ReadRules, ReadState, Reader, Sink};
use crate::snapshot::Snapshot;
use crate::source::{Source, Sources};
use crate::store::Shared;
use crate::table::{Table, TableVersion};
use crate::txn::Txn;

/// Which commits a scan sees.
#[derive(Clone, Default)]
pub enum View {
    /// Those that no crash can take back.
    #[default]
    Durable,
    /// All that have been accepted. What such a scan returned may be lost in a
    /// crash; a commit that depends on it is lost with it.
    Latest,
    /// Those up to a snapshot.
    At(Arc<Snapshot>),
}

/// What happens to a row that is written while it is being read in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowMode {
    /// The row is read as it was when its reading began.
    #[default]
    Isolated,
    /// The scan fails with `ScanConflict`.
    Unchanged,
}

/// What to scan.
#[derive(Clone, Default)]
pub struct ScanSpec {
    /// Ranges of rows; empty means all. They may overlap and come in any order.
    pub rows: Vec<RowRange>,
    pub columns: Columns,
    /// Timestamps to return; `None` means all.
    pub times: Option<TimeRange>,
    /// Newest versions of each column to return.
    pub versions: Option<u32>,
    /// Whether to return markers too.
    pub markers: bool,
    /// Rows descend; the cells of a row keep their order.
    pub reverse: bool,
    pub rows_max: Option<usize>,
    pub cells_max: Option<usize>,
    pub view: View,
    pub row_mode: RowMode,
}

impl ScanSpec {
    /// Scans one row.
    pub fn row(row: &[u8]) -> ScanSpec {
        ScanSpec { rows: vec![RowRange::row(row)], ..ScanSpec::default() }
    }

    pub fn range(range: RowRange) -> ScanSpec {
        ScanSpec { rows: vec![range], ..ScanSpec::default() }
    }
}

/// How much a batch may hold. A batch makes progress whatever the limits.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub cells: usize,
    pub bytes: usize,
    /// Entries to look at, returned or not.
    pub work: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits { cells: usize::MAX, bytes: 1 << 20, work: 1 << 16 }
    }
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The oldest snapshot used for any row of the batch; valid as a
    /// `commit_max_txn` even when no row was found.
    pub txn: Txn,
    /// There is nothing more.
    pub done: bool,
}

/// An open scan.
pub struct Scan {
    shared: Arc<Shared>,
    table: Arc<Table>,
    spec: ScanSpec,
    /// What is left to read, in row order.
    ranges: VecDeque<RowRange>,
    now_micros: i64,
    rows_left: usize,
    cells_left: usize,
    state: ReadState,
    /// Set while a row has been begun and not finished.
    row_pin: Option<RowPin>,
    done: bool,
}

/// Keeps the rest of a row readable as it was.
#[derive(Clone)]
struct RowPin {
    rules: Arc<ReadRules>,
    snapshot: Arc<Snapshot>,
}

impl Scan {
    pub(crate) fn open(shared: Arc<Shared>, table: TableId, spec: ScanSpec) -> Result<Scan> {
        let table = shared.tables.get(table)?;
        let now_micros = shared.tables.world.clock.now_micros();
        let ranges = if spec.rows.is_empty() {
            VecDeque::from([RowRange::all()])
        } else {
            join_ranges(spec.rows.clone())
        };
        Ok(Scan {
            shared,
            table,
            rows_left: spec.rows_max.unwrap_or(usize::MAX),
            cells_left: spec.cells_max.unwrap_or(usize::MAX),
            spec,
            ranges,
            now_micros,
            state: ReadState::default(),
            row_pin: None,
            done: false,
        })
    }

    /// Gives the next cells to `sink`.
    pub fn next_batch(&mut self, limits: BatchLimits, sink: &mut Sink<'_>) -> Result<BatchEnd> {
        if self.table.is_dropped() {
            return Err(Error::UnknownTable(self.table.name.clone()));
        }
        let (version, pin) = self.begin()?;
        let txn = pin.rules.snapshot;
        if self.done {
            return Ok(BatchEnd { txn, done: true });
        }
        let mut budget = ReadBudget {
            rows: self.rows_left,
            cells: limits.cells.max(1).min(self.cells_left),
            bytes: limits.bytes.max(1),
            work: limits.work.max(1),
        };
        if budget.rows > 0 && budget.cells > 0 {
            let cells = budget.cells;
            let pass = Pass { version: &version, rules: &pin.rules, mid_row: false };
            let mid_row = self.read_ranges(pass, &mut budget, sink)?;
            self.cells_left -= cells - budget.cells;
            self.rows_left = budget.rows;
            self.row_pin = mid_row.then_some(pin);
        }
        let exhausted = self.ranges.is_empty() && self.row_pin.is_none();
        self.done = exhausted || self.rows_left == 0 || self.cells_left == 0;
        if self.done {
            self.row_pin = None;
        }
        Ok(BatchEnd { txn, done: self.done })
    }

    /// The version and rules of the batch: those of the row that was begun,
    /// or fresh ones.
    fn begin(&self) -> Result<(Arc<TableVersion>, RowPin)> {
        if let Some(pin) = &self.row_pin {
            let version = self.table.pinned_version();
            pin.snapshot.check()?;
            self.check_unchanged(pin.rules.snapshot)?;
            return Ok((version, pin.clone()));
        }
        let snapshots = &self.shared.tables.snapshots;
        let snapshot = match &self.spec.view {
            View::Durable => Arc::new(snapshots.hold(|| self.shared.durable())),
            View::Latest => Arc::new(snapshots.hold(|| self.shared.latest())),
            View::At(snapshot) => snapshot.clone(),
        };
        let version = self.table.pinned_version();
        snapshot.check()?;
        let rules = ReadRules {
            snapshot: snapshot.txn(),
            now_micros: self.now_micros,
            schema: version.schema.clone(),
            folds: self.shared.tables.folds.clone(),
            columns: self.spec.columns.clone(),
            times: self.spec.times.unwrap_or(TimeRange::ALL),
            versions: self.spec.versions,
            markers: self.spec.markers,
        };
        Ok((version, RowPin { rules: Arc::new(rules), snapshot }))
    }

    fn check_unchanged(&self, snapshot: Txn) -> Result<()> {
        if self.spec.row_mode != RowMode::Unchanged {
            return Ok(());
        }
        let row = self.state.row().expect("a pinned row has been begun");
        if self.shared.newest_of(&self.table, RowSlot::of(self.table.id, row)) > snapshot {
            return Err(Error::ScanConflict { row: Printable::from(row) });
        }
        Ok(())
    }

    /// Reads range after range until the budget is spent. Tells whether it
    /// stopped inside a row.
    fn read_ranges(
        &mut self,
        mut pass: Pass<'_>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let groups = wanted_groups(&self.spec.columns, pass.version);
        while let Some(range) = self.next_range(pass.version)? {
            let options = self.cursor_options(&pass, &range);
            let tablet = tablet_of(pass.version, &range, self.spec.reverse);
            let sources = Sources::of_tablet(pass.version, tablet, &groups, &range, &options)?;
            let mut merge = Merge::new(sources.cursors);
            let end = if self.spec.reverse {
                self.read_reverse(&mut pass, &mut merge, &sources.spans, &range, budget, sink)?
            } else {
                self.read_forward(&mut pass, &mut merge, &sources.spans, &range, budget, sink)?
            };
            if end == ReadEnd::Budget {
                return Ok(pass.mid_row);
            }
            self.finish_part(&range);
        }
        Ok(false)
    }

    fn read_forward(
        &mut self,
        pass: &mut Pass<'_>,
        merge: &mut Merge<Source>,
        spans: &[Arc<Spans>],
        range: &RowRange,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let start = self.state.resume_key().unwrap_or_else(|| key::row_start(&range.start));
        let bound = range.end.as_deref().map(key::row_start);
        merge.seek(&start)?;
        let mut reader = Reader { merge, state: &mut self.state, rules: pass.rules, spans };
        let end = reader.read(bound.as_deref(), budget, sink)?;
        if end == ReadEnd::Budget {
            self.stop_inside(pass, merge, budget);
        }
        Ok(end)
    }

    /// Rows from the last to the first, each row forwards.
    fn read_reverse(
        &mut self,
        pass: &mut Pass<'_>,
        merge: &mut Merge<Source>,
        spans: &[Arc<Spans>],
        range: &RowRange,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let first = key::row_start(&range.start);
        let mut bound = range.end.as_deref().map(key::row_start);
        loop {
            let start = match self.state.resume_key() {
                Some(start) => start,
                None => match merge.row_before(bound.as_deref())? {
                    Some(prefix) if prefix >= first => prefix,
                    _ => return Ok(ReadEnd::Bound),
                },
            };
            let prefix = key::row_prefix(&start).expect("a row was found or begun").to_vec();
            let mut past = prefix.clone();
            key::push_past(&mut past);
            merge.seek(&start)?;
            let mut reader = Reader { merge, state: &mut self.state, rules: pass.rules, spans };
            if reader.read(Some(&past), budget, sink)? == ReadEnd::Budget {
                self.stop_inside(pass, merge, budget);
                return Ok(ReadEnd::Budget);
            }
            let row = key::row_of(&prefix).expect("a row prefix holds a row");
            self.shrink_to_before(row);
            if budget.rows == 0 || budget.spent() {
                return Ok(ReadEnd::Budget);
            }
            bound = Some(prefix);
        }
    }

    /// The budget ended the reading: either inside a row, or between two.
    fn stop_inside(&mut self, pass: &mut Pass<'_>, merge: &Merge<Source>, budget: &mut ReadBudget) {
        let Some(row) = self.state.row().map(<[u8]>::to_vec) else { return };
        if self.state.row_goes_on(merge) {
            pass.mid_row = true;
            return;
        }
        self.state.settle_row(budget);
        self.state = ReadState::default();
        if self.spec.reverse {
            self.shrink_to_before(row);
        } else {
            let range = self.ranges.front_mut().expect("a range is being read");
            range.start = successor(&row);
        }
    }

    fn shrink_to_before(&mut self, row: Vec<u8>) {
        self.ranges.back_mut().expect("a range is being read").end = Some(row);
    }

    /// The next stretch of rows to read: inside one range and one tablet, and
    /// clear of lost fragments.
    fn next_range(&mut self, version: &TableVersion) -> Result<Option<RowRange>> {
        let at_hand = |ranges: &VecDeque<RowRange>, reverse: bool| {
            if reverse { ranges.back().cloned() } else { ranges.front().cloned() }
        };
        while let Some(range) = at_hand(&self.ranges, self.spec.reverse) {
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
            let groups = wanted_groups(&self.spec.columns, version);
            return clear_of_loss(version, tablet, &groups, range, self.spec.reverse).map(Some);
        }
        Ok(None)
    }

    /// A stretch has been read to its end.
    fn finish_part(&mut self, part: &RowRange) {
        if self.spec.reverse {
            let range = self.ranges.back_mut().expect("a range is being read");
            range.end = Some(part.start.clone());
        } else {
            let range = self.ranges.front_mut().expect("a range is being read");
            match &part.end {
                Some(end) => range.start = end.clone(),
                None => *range = RowRange::new("", ""),
            }
        }
    }

    fn cursor_options(&self, pass: &Pass<'_>, range: &RowRange) -> CursorOptions {
        let families = match &self.spec.columns {
            Columns::All => None,
            Columns::Families(list) => {
                Some(list.iter().map(|wanted| wanted.family.clone()).collect())
            }
        };
        // Passing over newer versions would rank the older ones too high.
        let ranked = pass.rules.schema.ranks_versions();
        let times = self.spec.times.filter(|_| !ranked);
        CursorOptions {
            fill_cache: range.single_row().is_some() || self.spec.rows_max.is_some(),
            timestamps: times.map(|times| times.min..=times.max),
            families,
        }
    }
}

/// What one batch reads with.
struct Pass<'a> {
    version: &'a TableVersion,
    rules: &'a ReadRules,
    /// The reading stopped inside a row.
    mid_row: bool,
}

/// The groups that hold any wanted family.
fn wanted_groups(columns: &Columns, version: &TableVersion) -> Vec<usize> {
    match columns {
        Columns::All => (0..version.memory.len()).collect(),
        Columns::Families(list) => {
            let found = list.iter().filter_map(|wanted| version.schema.find(&wanted.family));
            let mut groups: Vec<usize> = found.map(|family| family.group).collect();
            groups.sort_unstable();
            groups.dedup();
            groups
        }
    }
}

/// The tablet that holds the first (or in reverse the last) row of a range.
fn tablet_of(version: &TableVersion, range: &RowRange, reverse: bool) -> usize {
    let last = version.tablets.len() - 1;
    if reverse {
        version.tablets.iter().rposition(|tablet| tablet.rows.overlaps(range)).unwrap_or(last)
    } else {
        version.tablets.iter().position(|tablet| tablet.rows.overlaps(range)).unwrap_or(0)
    }
}

/// Cuts a range off before the first row that a lost fragment lies over, or
/// fails when it begins with such a row.
fn clear_of_loss(
    version: &TableVersion,
    tablet: usize,
    groups: &[usize],
    mut range: RowRange,
    reverse: bool,
) -> Result<RowRange> {
    let chains = &version.tablets[tablet].chains;
    for link in groups.iter().flat_map(|&group| &chains[group].links) {
        let Err(error) = link.fragment() else { continue };
        let lost = link.file.rows.intersection(&range);
        if lost.is_empty() {
            continue;
        }
        if reverse {
            let Some(end) = lost.end.filter(|end| Some(end) != range.end.as_ref()) else {
                return Err(error);
            };
            range.start = end;
        } else if lost.start == range.start {
            return Err(error);
        } else {
            range.end = Some(lost.start);
        }
    }
    Ok(range)
}

/// Sorts ranges and joins those that overlap or touch; drops empty ones.
fn join_ranges(mut ranges: Vec<RowRange>) -> VecDeque<RowRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut joined: VecDeque<RowRange> = VecDeque::with_capacity(ranges.len());
    for range in ranges {
        match joined.back_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= range.start) => {
                if let Some(end) = &last.end
                    && range.end.as_ref().is_none_or(|other| other > end)
                {
                    last.end = range.end;
                }
            }
            _ => joined.push_back(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_joined_and_never_empty() {
        let range = RowRange::new;
        let joined = join_ranges(vec![
            range("m", "p"),
            range("x", "a"),
            range("a", "c"),
            range("b", "d"),
            range("p", "q"),
            RowRange::from("z"),
            range("zz", "zzz"),
        ]);
        assert_eq!(joined, [range("a", "d"), range("m", "q"), RowRange::from("z")]);
    }
}
