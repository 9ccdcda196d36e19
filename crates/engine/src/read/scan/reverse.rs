//! Reverse scans: rows in descending order, the cells of each row in order.
//!
//! Runs can only be read forwards efficiently, so a stretch of rows is read
//! forwards into a buffer and returned row by row from its end. A row that is a
//! stretch by itself is read directly.

use std::ops::Range;
use std::sync::Arc;

use super::batches::{Pass, Scan};
use crate::cell::key;
use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::merge::{
    CellView, EntryPlace, Flow, Merge, PlaceNote, ReadBudget, ReadEnd, ReadState, Reader, Sink,
};
use crate::read::source::Source;
use crate::txn::Txn;

/// Minimum budget for reading a stretch; with less, most of it would be read and
/// discarded.
const STRETCH_BUDGET_MIN: ReadBudget =
    ReadBudget { rows: 64, cells: 256, bytes: 64 << 10, work: 1024, ..ReadBudget::UNLIMITED };

/// Maximum size of a buffered stretch; the rows of a larger one are read one at
/// a time.
const STRETCH_BYTES_MAX: usize = 4 << 20;

/// Outcome of reading a stretch.
enum Stretch {
    /// All rows from this prefix on were returned.
    Returned(Vec<u8>),
    /// The next row is a stretch of its own, or exceeds the budget.
    WideRow,
    /// There are no more rows.
    Nothing,
    /// The budget is spent.
    Budget,
}

impl Scan {
    pub(super) fn read_reverse(
        &mut self,
        pass: &mut Pass<'_>,
        merge: &mut Merge<Source>,
        range_tombstones: &[Arc<dyn RangeTombstoneLookup>],
        range: &RowRange,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let first = key::row_start(&range.start);
        let mut bound = range.end.as_deref().map(key::row_start);
        let mut rows = BufferedRows::default();
        loop {
            if self.state.row().is_none()
                && allows_stretch(budget)
                && !self.is_large(bound.as_deref())
            {
                let remaining =
                    Remaining { first: &first, bound: bound.as_deref(), rows: &mut rows };
                match self.read_stretch(pass, merge, range_tombstones, remaining, budget, sink)? {
                    Stretch::Returned(prefix) => {
                        bound = Some(prefix);
                        continue;
                    }
                    Stretch::WideRow => {}
                    Stretch::Nothing => return Ok(ReadEnd::Bound),
                    Stretch::Budget => return Ok(ReadEnd::Budget),
                }
            }
            let begun = self.state.row_prefix().map(<[u8]>::to_vec);
            let (prefix, begun) = match begun {
                Some(prefix) => (prefix, true),
                None => {
                    match merge.row_before(bound.as_deref(), &covered(pass, range_tombstones))? {
                        Some(prefix) if prefix >= first => (prefix, false),
                        _ => return Ok(ReadEnd::Bound),
                    }
                }
            };
            let mut past = prefix.clone();
            key::push_past(&mut past);
            let (rules, places) = (pass.rules, pass.places);
            let state = &mut self.state;
            let mut reader = Reader { merge, state, rules, range_tombstones, places, once: false };
            if begun {
                reader.resume(pass.version.number == self.state_version)?;
            } else {
                reader.merge.seek(&prefix)?;
            }
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

    /// Whether the rows before `bound` are known to be too large for a stretch.
    fn is_large(&mut self, bound: Option<&[u8]>) -> bool {
        let large = |from: &Vec<u8>| bound.is_none_or(|bound| bound > from.as_slice());
        self.large_from = self.large_from.take().filter(large);
        self.large_from.is_some()
    }

    /// Reads the last stretch before `remaining.bound`.
    fn read_stretch(
        &mut self,
        pass: &Pass<'_>,
        merge: &mut Merge<Source>,
        range_tombstones: &[Arc<dyn RangeTombstoneLookup>],
        remaining: Remaining<'_>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<Stretch> {
        let stretch = merge.stretch_before(remaining.bound, &covered(pass, range_tombstones))?;
        let Some((start, last)) = stretch else {
            return Ok(Stretch::Nothing);
        };
        if last.as_slice() < remaining.first {
            return Ok(Stretch::Nothing);
        }
        if start == last {
            return Ok(Stretch::WideRow);
        }
        let start = start.max(remaining.first.to_vec());
        merge.seek(&start)?;
        let rows = remaining.rows;
        rows.clear();
        let mut unlimited = ReadBudget { value_bytes: budget.value_bytes, ..ReadBudget::UNLIMITED };
        let (rules, places) = (pass.rules, pass.places);
        let state = &mut self.state;
        let mut reader = Reader { merge, state, rules, range_tombstones, places, once: false };
        let found = || places.and_then(PlaceNote::take);
        reader.read(remaining.bound, &mut unlimited, &mut |cell| {
            if rows.bytes.len() + cell.value.len() > STRETCH_BYTES_MAX {
                return Flow::Stop;
            }
            rows.push_cell(cell, found());
            Flow::Continue
        })?;
        if let Some(miss) = unlimited.miss {
            self.state.clear();
            budget.miss = Some(miss);
            return Ok(Stretch::Budget);
        }
        if unlimited.stopped {
            self.state.clear();
            self.large_from = Some(start);
            return Ok(Stretch::WideRow);
        }
        let work = ReadBudget::UNLIMITED.work - unlimited.work;
        budget.work = budget.work.saturating_sub(work);
        if unlimited.long_value.is_some() {
            // The rows up to that value are read one at a time.
            self.state = ReadState::default();
            return Ok(Stretch::WideRow);
        }
        let mut last_returned = None;
        for row in rows.rows.iter().rev() {
            if budget.rows == 0 || budget.cells < row.len() || budget.bytes == 0 {
                let Some(last_returned) = last_returned else { return Ok(Stretch::WideRow) };
                self.shrink_to_before(rows.row(last_returned).to_vec());
                return Ok(Stretch::Budget);
            }
            rows.pass_on(row.clone(), places, budget, sink);
            if budget.stopped {
                return Ok(Stretch::Budget);
            }
            last_returned = Some(row);
        }
        self.shrink_to_before(key::row_of(&start).expect("a row prefix holds a row"));
        if budget.rows == 0 || budget.spent() {
            return Ok(Stretch::Budget);
        }
        Ok(Stretch::Returned(start))
    }
}

/// Returns a function from a key to the start of the rows around it that a
/// range tombstone deletes, in a run with nothing newer than `txn_max`.
fn covered<'p>(
    pass: &Pass<'p>,
    range_tombstones: &'p [Arc<dyn RangeTombstoneLookup>],
) -> impl Fn(&[u8], Txn) -> Option<Vec<u8>> + use<'p> {
    let snapshot = pass.rules.snapshot;
    move |key, txn_max| {
        if range_tombstones.is_empty() {
            return None;
        }
        let row = key::row_of(key)?;
        let over = range_tombstones.iter();
        let over = over.filter_map(|tombstones| tombstones.covering_range(&row, snapshot));
        let newer = over.filter(|(_, txn)| *txn > txn_max);
        newer.map(|(rows, _)| rows.start).min().map(|start| key::row_start(&start))
    }
}

/// The part of the runs left to read.
struct Remaining<'a> {
    first: &'a [u8],
    bound: Option<&'a [u8]>,
    /// Reused across stretches to save allocations.
    rows: &'a mut BufferedRows,
}

fn allows_stretch(budget: &ReadBudget) -> bool {
    budget.rows >= STRETCH_BUDGET_MIN.rows
        && budget.cells >= STRETCH_BUDGET_MIN.cells
        && budget.bytes >= STRETCH_BUDGET_MIN.bytes
        && budget.work >= STRETCH_BUDGET_MIN.work
}

/// Cells copied from a stretch, to be returned in another order.
#[derive(Default)]
struct BufferedRows {
    bytes: Vec<u8>,
    cells: Vec<BufferedCell>,
    /// The range of `cells` for each row.
    rows: Vec<Range<usize>>,
}

struct BufferedCell {
    row: Range<usize>,
    family: Range<usize>,
    qualifier: Range<usize>,
    value: Range<usize>,
    timestamp: i64,
    txn: Txn,
    marker: bool,
    place: Option<EntryPlace>,
}

impl BufferedRows {
    fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
        self.rows.clear();
    }

    fn push_cell(&mut self, cell: &CellView<'_>, place: Option<EntryPlace>) {
        let at = self.cells.len();
        let same_row = self.cells.last().map(|last| last.row.clone());
        let row = match same_row.filter(|row| same_bytes(&self.bytes[row.clone()], cell.row)) {
            Some(row) => {
                self.rows.last_mut().expect("a cell has a row").end = at + 1;
                row
            }
            None => {
                self.rows.push(at..at + 1);
                self.push(cell.row)
            }
        };
        let (family, qualifier) = self.push_column(cell);
        let value = self.push(cell.value);
        let CellView { timestamp, txn, marker, .. } = *cell;
        self.cells.push(BufferedCell {
            row,
            family,
            qualifier,
            value,
            timestamp,
            txn,
            marker,
            place,
        });
    }

    /// Stores the column, which is often that of the previous cell.
    fn push_column(&mut self, cell: &CellView<'_>) -> (Range<usize>, Range<usize>) {
        if let Some(last) = self.cells.last() {
            let (family, qualifier) = (last.family.clone(), last.qualifier.clone());
            let same = same_bytes(&self.bytes[family.clone()], cell.family)
                && same_bytes(&self.bytes[qualifier.clone()], cell.qualifier);
            if same {
                return (family, qualifier);
            }
        }
        (self.push(cell.family), self.push(cell.qualifier))
    }

    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn row(&self, cells: &Range<usize>) -> &[u8] {
        &self.bytes[self.cells[cells.start].row.clone()]
    }

    fn pass_on(
        &self,
        cells: Range<usize>,
        places: Option<&PlaceNote>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) {
        let mut left: Option<&BufferedCell> = None;
        for cell in &self.cells[cells] {
            if left.is_some_and(|left| self.same_column(left, cell)) {
                continue;
            }
            if let Some(places) = places {
                places.set(cell.place);
            }
            let view = CellView {
                row: &self.bytes[cell.row.clone()],
                family: &self.bytes[cell.family.clone()],
                qualifier: &self.bytes[cell.qualifier.clone()],
                timestamp: cell.timestamp,
                txn: cell.txn,
                marker: cell.marker,
                value: &self.bytes[cell.value.clone()],
            };
            let flow = sink(&view);
            budget.pay_cell(&view);
            match flow {
                Flow::Continue => {}
                Flow::NextColumn => left = Some(cell),
                Flow::NextRow => break,
                Flow::Stop => {
                    budget.stop();
                    break;
                }
            }
        }
        budget.rows -= 1;
    }

    fn same_column(&self, a: &BufferedCell, b: &BufferedCell) -> bool {
        self.bytes[a.family.clone()] == self.bytes[b.family.clone()]
            && self.bytes[a.qualifier.clone()] == self.bytes[b.qualifier.clone()]
    }
}

/// Whether two names are equal. Compares the last byte first: names of
/// neighbours in a sorted run usually differ at the end, if at all, and many
/// names are only a byte or two, so most comparisons are short.
#[inline(always)]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    match (a.split_last(), b.split_last()) {
        (Some((last_a, a)), Some((last_b, b))) => {
            last_a == last_b && a.len() == b.len() && (a.is_empty() || a == b)
        }
        (None, None) => true,
        _ => false,
    }
}
