//! What a reader sees: the cells of merged runs at a snapshot, after deletes,
//! folds, purge policy and the caller's own restrictions.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::columns::Columns;
use super::coverage::{Coverage, SEEN, Stripe};
use super::cursor::Cursor;
use super::kway::Merge;
use crate::cell::commit::TimeRange;
use crate::cell::fold::{FoldId, Folds};
use crate::cell::key::{self, KeyParts, Kind, Level};
use crate::cell::span::RangeDeletes;
use crate::error::{Error, Result};
use crate::fragment::EntryPlace;
use crate::schema::{FamilyRef, Ranks, Schema};
use crate::txn::Txn;

/// A cell as a reader sees it. Borrowed: the sink copies what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellView<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    /// The commit that wrote it, or zero once that makes no difference.
    pub txn: Txn,
    /// An erasure kept as history; shown only to readers that ask for it.
    pub marker: bool,
    pub value: &'a [u8],
}

/// What a read may see. Fixed for as long as a row is being read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRules<'a> {
    pub snapshot: Txn,
    /// The purge clock, fixed when the scan is opened.
    pub now_micros: i64,
    pub schema: &'a Schema,
    pub folds: &'a Folds,
    pub columns: &'a Columns,
    pub times: TimeRange,
    /// Newest versions of each column to return, after all else.
    pub versions: Option<u32>,
    /// Whether to show markers. They count as versions either way.
    pub markers: bool,
}

/// How much one call may do. A call stops at the first limit it reaches.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    pub rows: usize,
    pub cells: usize,
    pub bytes: usize,
    /// Entries to examine, whether returned or not; a long value counts as
    /// several.
    pub work: usize,
    /// The sink wants nothing more.
    pub stopped: bool,
    /// The call ends before a cell whose value is longer.
    pub value_bytes: usize,
    /// The length of such a value.
    pub long_value: Option<usize>,
}

/// So many bytes of a value cost as much work as an entry.
const BYTES_PER_WORK: usize = 4 << 10;

impl ReadBudget {
    pub const UNLIMITED: ReadBudget = ReadBudget {
        rows: usize::MAX,
        cells: usize::MAX,
        bytes: usize::MAX,
        work: usize::MAX,
        stopped: false,
        value_bytes: usize::MAX,
        long_value: None,
    };

    /// A cell has been returned.
    pub fn pay_cell(&mut self, cell: &CellView<'_>) {
        let names = cell.row.len() + cell.family.len() + cell.qualifier.len();
        self.cells -= 1;
        self.bytes = self.bytes.saturating_sub(names + cell.value.len() + 16);
    }

    /// An entry has been examined.
    fn pay_entry(&mut self, value: &[u8]) {
        self.work = self.work.saturating_sub(1 + value.len() / BYTES_PER_WORK);
    }

    /// Ends the call before the next entry.
    pub fn stop(&mut self) {
        self.work = 0;
        self.stopped = true;
    }

    pub fn spent(&self) -> bool {
        self.cells == 0 || self.bytes == 0 || self.work == 0
    }
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// Everything before the bound has been read.
    Bound,
    /// A limit of the budget was reached; there may be more.
    Budget,
}

/// Where a reader is. It owns all that it needs to go on in other runs with
/// the same cells, so nothing is pinned between two calls.
#[derive(Clone, Debug, Default)]
pub struct ReadState {
    /// The last entry taken; empty before the first.
    key: Vec<u8>,
    parts: Option<KeyParts>,
    row: Vec<u8>,
    qualifier: Vec<u8>,
    coverage: Coverage,
    family: Option<FamilyRef>,
    row_returned: bool,
    column: ColumnState,
    /// Operands of the version at hand, newest first, still without a base.
    pending: Vec<(FoldId, Vec<u8>)>,
    pending_txn: Txn,
    /// Where to skip to; kept only for its memory.
    target: Vec<u8>,
    /// Deleted cells passed since range tombstones were last consulted.
    covered_steps: usize,
}

/// How many deleted cells are passed one by one before it is worth a look
/// whether a range tombstone covers what follows.
const STEPS_BEFORE_LEAP: usize = 16;

/// The newest range tombstone of each list over a row.
fn covering(
    spans: &[Arc<dyn RangeDeletes>],
    row: &[u8],
    snapshot: Txn,
) -> impl Iterator<Item = (Stripe, Txn)> {
    spans.iter().filter_map(move |spans| Some((SEEN, spans.covering(row, snapshot)?)))
}

#[derive(Clone, Debug, Default)]
struct ColumnState {
    wanted: bool,
    ranks: Ranks,
    returned: u32,
    /// The timestamp of the version at hand.
    version: Option<i64>,
    /// The sink wants no more of the column.
    closed: bool,
    /// The version of the last deleted cell.
    covered: Option<i64>,
}

impl ReadState {
    /// Forgets the place but keeps the buffers.
    pub fn clear(&mut self) {
        self.key.clear();
        self.parts = None;
        self.coverage.enter_row(std::iter::empty());
        self.family = None;
        self.row_returned = false;
        self.column = ColumnState::default();
        self.pending.clear();
    }

    /// The row being read, when the reader stopped inside one.
    pub fn row(&self) -> Option<&[u8]> {
        self.parts.map(|_| self.row.as_slice())
    }

    /// Whether more of the row may come, given the runs it was read from.
    pub fn row_goes_on<C: Cursor>(&self, merge: &Merge<C>) -> bool {
        let Some(parts) = self.parts else { return false };
        merge.valid() && merge.key().starts_with(&self.key[..parts.row_end])
    }

    /// The row at hand is over: it counts if any of it was returned.
    pub fn settle_row(&mut self, budget: &mut ReadBudget) {
        if self.row_returned {
            budget.rows = budget.rows.saturating_sub(1);
            self.row_returned = false;
        }
    }

    /// The prefix of the row being read.
    pub fn row_prefix(&self) -> Option<&[u8]> {
        self.parts.map(|parts| &self.key[..parts.row_end])
    }
}

/// Reads merged runs from where they stand.
pub struct Reader<'a, C> {
    pub merge: &'a mut Merge<C>,
    pub state: &'a mut ReadState,
    pub rules: &'a ReadRules<'a>,
    /// Range tombstones of all runs.
    pub spans: &'a [Arc<dyn RangeDeletes>],
    /// Where the place of a row's first cell is noted before the sink gets the
    /// cell, if anybody wants to know.
    pub places: Option<&'a PlaceNote>,
    /// Nobody goes on where the read ends, so entries that cannot change it
    /// any more are not even looked at.
    pub once: bool,
}

/// Tells the sink where a cell is.
pub type PlaceNote = Cell<Option<EntryPlace>>;

/// Takes the cells as they are found, and decides how the read goes on.
pub type Sink<'s> = dyn FnMut(&CellView<'_>) -> Flow + 's;

/// How a read goes on behind a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// With the next cell.
    Continue,
    /// With the next column: older versions of this one are skipped.
    NextColumn,
    /// With the next row.
    NextRow,
    /// Not at all: nothing more is wanted, and a scan is done.
    Stop,
}

/// A sink without a verdict takes all cells.
impl From<()> for Flow {
    fn from(_: ()) -> Flow {
        Flow::Continue
    }
}

impl From<ControlFlow<()>> for Flow {
    fn from(flow: ControlFlow<()>) -> Flow {
        if flow.is_break() { Flow::Stop } else { Flow::Continue }
    }
}

impl<C: Cursor> Reader<'_, C> {
    /// Goes back into the row that was begun, after its last entry taken. The
    /// tombstones over that place are taken anew: those met before may have
    /// been dropped meanwhile, and with them the txns of what they spared.
    pub fn resume(&mut self) -> Result<()> {
        let parts = self.state.parts.expect("a row was begun");
        let snapshot = self.rules.snapshot;
        let row = &self.state.row;
        self.state.coverage.enter_row(covering(self.spans, row, snapshot));
        self.take_tombstones(parts.row_end)?;
        if parts.family_end > parts.row_end {
            let family = self.state.family;
            let since = family.map_or(Txn::ZERO, |at| self.rules.schema.since(at));
            self.state.coverage.begin_family_after(since);
            self.take_tombstones(parts.family_end)?;
        }
        if parts.column_end > parts.family_end {
            self.take_tombstones(parts.column_end)?;
        }
        self.state.target.clear();
        self.state.target.extend_from_slice(&self.state.key);
        self.state.target.push(0);
        self.merge.seek(&self.state.target)
    }

    /// Takes the tombstones that stand right behind a prefix of the last key.
    fn take_tombstones(&mut self, prefix_end: usize) -> Result<()> {
        // Those that are too new stand before the others.
        self.aim_at_prefix(prefix_end);
        key::push_seek_tombstone(&mut self.state.target, self.rules.snapshot);
        self.merge.seek(&self.state.target)?;
        let prefix = &self.state.key[..prefix_end];
        while self.merge.valid() && self.merge.key().starts_with(prefix) {
            let entry = self.merge.key();
            let parts = KeyParts::parse(entry).ok_or_else(|| bad_key(entry))?;
            if parts.kind != Kind::Tombstone || parts.column_end != prefix_end {
                break;
            }
            let value = self.merge.value();
            if self.state.coverage.add(parts.level, SEEN, parts.txn, value).rest_needless {
                break;
            }
            self.merge.advance()?;
        }
        Ok(())
    }

    /// Reads up to `bound` (exclusive) or until the budget is spent.
    pub fn read(
        &mut self,
        bound: Option<&[u8]>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let bound = bound.map(Bound::new);
        while self.merge.valid()
            && bound.as_ref().is_none_or(|bound| bound.is_after(self.merge.key()))
        {
            // Never between the operands of one version: they may be folded
            // into one entry, with the newest one's key, before the next call.
            if budget.spent() && self.state.pending.is_empty() {
                return Ok(ReadEnd::Budget);
            }
            let place = self.place()?;
            if !self.state.pending.is_empty() && self.leaves_version(&place) {
                let flow = self.settle_pending(None, budget, sink)?;
                self.follow(flow, budget)?;
                continue;
            }
            if place.change <= Change::Row && self.row_limit_reached(budget) {
                return Ok(ReadEnd::Budget);
            }
            let value = self.merge.value();
            if value.len() > budget.value_bytes && self.may_return(&place) {
                budget.long_value = Some(value.len());
                return Ok(ReadEnd::Budget);
            }
            budget.pay_entry(value);
            self.enter(&place);
            self.take(&place, budget, sink)?;
            if self.is_over(budget) {
                break;
            }
        }
        if !self.state.pending.is_empty() && self.settle_pending(None, budget, sink)? == Flow::Stop
        {
            budget.stop();
        }
        self.row_limit_reached(budget);
        self.state.clear();
        Ok(ReadEnd::Bound)
    }

    /// Settles the account of the row that ends.
    fn row_limit_reached(&mut self, budget: &mut ReadBudget) -> bool {
        self.state.settle_row(budget);
        budget.rows == 0
    }

    /// Takes the entry under the merge apart, relative to the last one.
    fn place(&self) -> Result<Place> {
        let entry = self.merge.key();
        if let Some(last) = self.state.parts {
            let last_key = &self.state.key;
            let in_column = last.column_end > last.family_end
                && entry.len() > last.column_end
                && entry[..last.column_end] == last_key[..last.column_end];
            if in_column {
                let parts = last.parse_in_column(entry).ok_or_else(|| bad_key(entry))?;
                return Ok(Place { parts, change: Change::None });
            }
            if last.is_next_row(last_key, entry) {
                let parts = last.parse_in_column(entry).ok_or_else(|| bad_key(entry))?;
                return Ok(Place { parts, change: Change::NextRow });
            }
            let parts = KeyParts::parse(entry).ok_or_else(|| bad_key(entry))?;
            let same =
                |end: usize, last_end: usize| end == last_end && entry[..end] == last_key[..end];
            let change = if !same(parts.row_end, last.row_end) {
                Change::Row
            } else if !same(parts.family_end, last.family_end) {
                Change::Family
            } else {
                Change::Column
            };
            return Ok(Place { parts, change });
        }
        let parts = KeyParts::parse(entry).ok_or_else(|| bad_key(entry))?;
        Ok(Place { parts, change: Change::Row })
    }

    fn leaves_version(&self, place: &Place) -> bool {
        place.change != Change::None
            || place.parts.level != Level::Cell
            || self.state.column.version != Some(place.parts.timestamp)
    }

    /// Makes the entry's row, family and column the current ones.
    fn enter(&mut self, place: &Place) {
        let entry = self.merge.key();
        let state = &mut *self.state;
        let parts = &place.parts;
        if place.change <= Change::Row {
            key::unescape_into(parts.escaped_row(entry), &mut state.row);
            let snapshot = self.rules.snapshot;
            let row = &state.row;
            state.coverage.enter_row(covering(self.spans, row, snapshot));
            state.row_returned = false;
        }
        if place.change == Change::NextRow {
            // The family and the qualifier are those of the row before.
            let since = state.family.map_or(Txn::ZERO, |at| self.rules.schema.since(at));
            state.coverage.begin_family_after(since);
            state.column = ColumnState { wanted: state.column.wanted, ..ColumnState::default() };
            state.key.clear();
            state.key.extend_from_slice(entry);
            state.parts = Some(*parts);
            return;
        }
        if place.change <= Change::Family {
            if place.change == Change::Family {
                state.coverage.enter_family();
            }
            state.family = None;
            if parts.level != Level::RowTombstone {
                let family = parts.family(entry);
                let known = self.rules.schema.find(family);
                state.family = known.filter(|_| self.rules.columns.wants_family(family));
                let since = state.family.map_or(Txn::ZERO, |at| self.rules.schema.since(at));
                state.coverage.begin_family_after(since);
            }
        }
        if place.change <= Change::Column {
            state.coverage.enter_column();
            state.column = ColumnState::default();
            if matches!(parts.level, Level::ColumnTombstone | Level::Cell) {
                key::unescape_into(parts.escaped_qualifier(entry), &mut state.qualifier);
                state.column.wanted = state.family.is_some()
                    && self.rules.columns.wants_column(parts.family(entry), &state.qualifier);
            }
            state.key.clear();
            state.key.extend_from_slice(entry);
        } else {
            state.key.truncate(parts.column_end);
            state.key.extend_from_slice(&entry[parts.column_end..]);
        }
        state.parts = Some(*parts);
    }

    fn take(&mut self, place: &Place, budget: &mut ReadBudget, sink: &mut Sink<'_>) -> Result<()> {
        let parts = &place.parts;
        if parts.level >= Level::FamilyTombstone && self.state.family.is_none() {
            return self.skip_past(parts.family_end, budget);
        }
        if parts.level >= Level::ColumnTombstone {
            if !self.state.column.wanted {
                return self.skip_to_wanted(parts, budget);
            }
            if self.column_done(parts) {
                return self.skip_past(parts.column_end, budget);
            }
        }
        if parts.level == Level::Cell && self.skips_newer_than(parts) {
            return self.skip_newer(parts, budget);
        }
        if parts.level != Level::Cell {
            return self.take_tombstone(parts, budget);
        }
        if parts.txn <= self.rules.snapshot {
            if self.state.coverage.covers(parts.timestamp, parts.txn) {
                return self.pass_covered(parts, budget);
            }
            if self.is_superseded(parts) {
                return self.skip_version(parts, budget);
            }
            let flow = self.take_cell(parts, budget, sink)?;
            if flow != Flow::Continue {
                return self.follow(flow, budget);
            }
        }
        if self.is_over(budget) { Ok(()) } else { self.merge.advance() }
    }

    /// Skips tombstones that the reader does not see, and those that a newer
    /// one makes needless.
    fn take_tombstone(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        if parts.txn > self.rules.snapshot {
            self.aim_at_prefix(parts.column_end);
            key::push_seek_tombstone(&mut self.state.target, self.rules.snapshot);
            return self.skip_to_target(budget);
        }
        let value = self.merge.value();
        if !self.state.coverage.add(parts.level, SEEN, parts.txn, value).rest_needless {
            return self.merge.advance();
        }
        self.aim_at_prefix(parts.column_end);
        key::push_past_tombstones(&mut self.state.target);
        self.skip_to_target(budget)
    }

    /// Leaves a deleted cell, for as many others as are known to be deleted.
    fn pass_covered(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        let state = &mut *self.state;
        state.covered_steps += 1;
        if state.covered_steps >= STEPS_BEFORE_LEAP && !self.spans.is_empty() {
            state.covered_steps = 0;
            if self.leap_spans()? {
                return Ok(());
            }
        }
        // What is below the same version is older, and deleted too.
        if self.state.column.covered.replace(parts.timestamp) == Some(parts.timestamp) {
            return self.skip_version(parts, budget);
        }
        self.merge.advance()
    }

    /// Moves every run that has nothing newer than a range tombstone over the
    /// current row to the end of that tombstone. Tells whether any was moved.
    fn leap_spans(&mut self) -> Result<bool> {
        let mut moved = false;
        for spans in self.spans {
            let over = spans.span_over(&self.state.row, self.rules.snapshot);
            let Some((rows, txn)) = over else { continue };
            let end = rows.end.as_deref().map(key::row_start);
            moved |= self.merge.leap_covered(end.as_deref(), txn)?;
        }
        Ok(moved)
    }

    /// Whether a newer entry of the same version has been shown.
    fn is_superseded(&self, parts: &KeyParts) -> bool {
        self.state.column.version == Some(parts.timestamp) && self.state.pending.is_empty()
    }

    /// Leaves the version at hand.
    fn skip_version(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(parts.column_end);
        key::push_past_version(&mut self.state.target, parts.timestamp);
        self.skip_to_target(budget)
    }

    /// Whether an entry that has not been taken yet may be a cell to return.
    #[cold]
    fn may_return(&self, place: &Place) -> bool {
        let (parts, entry) = (&place.parts, self.merge.key());
        self.state.pending.is_empty()
            && parts.level == Level::Cell
            && parts.txn <= self.rules.snapshot
            && self.rules.columns.wants_family(parts.family(entry))
    }

    /// Goes on behind the last entry taken as the sink asked.
    #[cold]
    fn follow(&mut self, flow: Flow, budget: &mut ReadBudget) -> Result<()> {
        let parts = self.state.parts.expect("an entry has been taken");
        match flow {
            Flow::Continue => Ok(()),
            Flow::NextColumn => {
                self.state.column.closed = true;
                self.skip_past(parts.column_end, budget)
            }
            Flow::NextRow => self.skip_past(parts.row_end, budget),
            Flow::Stop => {
                budget.stop();
                Ok(())
            }
        }
    }

    /// Whether everything wanted has been returned.
    fn is_over(&self, budget: &ReadBudget) -> bool {
        self.once
            && self.state.pending.is_empty()
            && (budget.cells == 0
                || budget.work == 0
                || self.column_closed() && self.is_in_last_column())
    }

    fn is_in_last_column(&self) -> bool {
        let Some((family, Some(end))) = self.rules.columns.last_wanted() else { return false };
        let Some(last) = end.strip_suffix(&[0]) else { return false };
        let parts = self.state.parts.expect("an entry has been taken");
        self.state.qualifier == last && parts.family(&self.state.key) == family
    }

    /// Leaves the rest of the current family or column.
    fn skip_past(&mut self, prefix_end: usize, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(prefix_end);
        key::push_past(&mut self.state.target);
        self.skip_to_target(budget)
    }

    /// Leaves unwanted columns for the next wanted one of the family, or for
    /// the next family.
    fn skip_to_wanted(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        let family = parts.family(&self.state.key);
        let wanted = self.rules.columns.next_wanted(family, &self.state.qualifier);
        let Some(qualifier) = wanted else { return self.skip_past(parts.family_end, budget) };
        self.aim_at_prefix(parts.family_end);
        key::push_qualifier(&mut self.state.target, qualifier);
        self.skip_to_target(budget)
    }

    /// Whether the cell is newer than any wanted one, and it does not matter
    /// how many such there are.
    fn skips_newer_than(&self, parts: &KeyParts) -> bool {
        parts.timestamp > self.rules.times.max
            && self.state.family.is_some_and(|family| {
                self.rules.schema.purge(family).ignores_newer_than(self.rules.times.max)
            })
    }

    /// Leaves the versions that are too new.
    fn skip_newer(&mut self, parts: &KeyParts, budget: &mut ReadBudget) -> Result<()> {
        self.aim_at_prefix(parts.column_end);
        key::push_seek_timestamp(&mut self.state.target, self.rules.times.max);
        self.skip_to_target(budget)
    }

    fn aim_at_prefix(&mut self, prefix_end: usize) {
        self.state.target.clear();
        self.state.target.extend_from_slice(&self.state.key[..prefix_end]);
    }

    fn skip_to_target(&mut self, budget: &mut ReadBudget) -> Result<()> {
        let steps = self.merge.skip_to(&self.state.target)?;
        budget.work = budget.work.saturating_sub(steps);
        Ok(())
    }

    /// Whether nothing more of the current column can be returned.
    fn column_done(&self, parts: &KeyParts) -> bool {
        let too_old = parts.level == Level::Cell && parts.timestamp < self.rules.times.min;
        self.state.pending.is_empty() && (self.column_closed() || too_old)
    }

    /// Whether as many versions of the current column were returned as are
    /// wanted.
    fn column_closed(&self) -> bool {
        self.state.column.closed
            || self.rules.versions.is_some_and(|most| self.state.column.returned >= most)
    }

    fn take_cell(
        &mut self,
        parts: &KeyParts,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<Flow> {
        let state = &mut *self.state;
        if state.column.version != Some(parts.timestamp) {
            state.column.version = Some(parts.timestamp);
            return Ok(match parts.kind {
                Kind::Merge(fold) => {
                    state.pending.push((FoldId(fold), self.merge.value().to_vec()));
                    state.pending_txn = parts.txn;
                    Flow::Continue
                }
                kind => {
                    if let Some(places) = self.places {
                        let first = kind == Kind::Put && !state.row_returned;
                        places.set(if first { self.merge.place() } else { None });
                    }
                    let value = self.merge.value();
                    show(state, self.rules, parts.txn, kind == Kind::Marker, value, budget, sink)
                }
            });
        }
        match parts.kind {
            Kind::Merge(fold) => {
                let older = self.merge.value();
                match state.pending.last_mut() {
                    Some((last, operand)) if last.0 == fold => {
                        *operand = self.rules.folds.fold(*last, older, operand)?;
                    }
                    _ => state.pending.push((FoldId(fold), older.to_vec())),
                }
                Ok(Flow::Continue)
            }
            Kind::Put => {
                let base = self.merge.value().to_vec();
                self.settle_pending(Some(base), budget, sink)
            }
            Kind::Marker | Kind::Tombstone => self.settle_pending(None, budget, sink),
        }
    }

    /// Folds the pending operands onto their base, oldest first.
    fn settle_pending(
        &mut self,
        base: Option<Vec<u8>>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<Flow> {
        let mut value = base;
        while let Some((fold, operand)) = self.state.pending.pop() {
            value = Some(match value {
                None => operand,
                Some(older) => self.rules.folds.fold(fold, &older, &operand)?,
            });
        }
        let value = value.expect("there was at least one operand");
        let txn = self.state.pending_txn;
        Ok(show(self.state, self.rules, txn, false, &value, budget, sink))
    }
}

/// Puts the version at hand through purge and the caller's restrictions.
fn show(
    state: &mut ReadState,
    rules: &ReadRules<'_>,
    txn: Txn,
    marker: bool,
    value: &[u8],
    budget: &mut ReadBudget,
    sink: &mut Sink<'_>,
) -> Flow {
    let timestamp = state.column.version.expect("a version is at hand");
    let family = state.family.expect("cells of unknown families are skipped");
    let policy = rules.schema.purge(family);
    let version = state.column.ranks.next(policy, timestamp, marker);
    if policy.purges(&version, rules.now_micros) || !rules.times.contains(timestamp) {
        return Flow::Continue;
    }
    if rules.versions.is_some_and(|most| state.column.returned >= most) {
        return Flow::Continue;
    }
    state.column.returned += 1;
    if marker && !rules.markers {
        return Flow::Continue;
    }
    let parts = state.parts.expect("an entry has been taken");
    let cell = CellView {
        row: &state.row,
        family: parts.family(&state.key),
        qualifier: &state.qualifier,
        timestamp,
        txn,
        marker,
        value,
    };
    let flow = sink(&cell);
    budget.pay_cell(&cell);
    state.row_returned = true;
    flow
}

/// Where reading ends. Most keys are told from it by their first bytes.
struct Bound<'a> {
    key: &'a [u8],
    word: u64,
}

impl Bound<'_> {
    fn new(key: &[u8]) -> Bound<'_> {
        Bound { key, word: first_word(key) }
    }

    #[inline(always)]
    fn is_after(&self, key: &[u8]) -> bool {
        let word = first_word(key);
        word < self.word || word == self.word && key < self.key
    }
}

/// The first eight bytes as a number of the same order; zeros where there are
/// fewer.
#[inline(always)]
fn first_word(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => key
            .iter()
            .enumerate()
            .fold(0, |word, (at, &byte)| word | u64::from(byte) << (56 - 8 * at)),
    }
}

#[derive(Clone, Copy)]
struct Place {
    parts: KeyParts,
    change: Change,
}

/// The highest level at which an entry differs from the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// Another row, but the same column of it.
    NextRow,
    Row,
    Family,
    Column,
    None,
}

/// Keys were checked when they were written and again by checksum.
fn bad_key(entry: &[u8]) -> Error {
    Error::CellDisorder(format!("\"{}\" is no cell key", entry.escape_ascii()))
}
