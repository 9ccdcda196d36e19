//! The read path over merged runs: returns the cells visible at a snapshot, after
//! deletes, folds, purge policy and the caller's restrictions.

use std::sync::Arc;

use super::coverage::{SEEN, Stripe};
use super::cursor::Cursor;
use super::kway::Merge;
use super::state::{Bound, Change, ColumnState, NextEntry, ReadState, Restart};
use super::view::{CellView, Flow, PlaceNote, ReadBudget, ReadEnd, ReadRules, Sink};
use crate::cell::fold::FoldId;
use crate::cell::key::{self, KeyParts, Kind, Level};
use crate::cell::range_tombstone::RangeTombstoneLookup;
use crate::error::{Error, Result};
use crate::txn::Txn;

/// Returns the newest range tombstone of each list that covers a row.
fn covering(
    range_tombstones: &[Arc<dyn RangeTombstoneLookup>],
    row: &[u8],
    snapshot: Txn,
) -> impl Iterator<Item = (Stripe, Txn)> {
    let lists = range_tombstones.iter();
    lists.filter_map(move |list| Some((SEEN, list.covering(row, snapshot)?)))
}

/// Reads merged runs from their current position.
pub struct Reader<'a, C> {
    pub merge: &'a mut Merge<C>,
    pub state: &'a mut ReadState,
    pub rules: &'a ReadRules<'a>,
    /// The range tombstones of all runs.
    pub range_tombstones: &'a [Arc<dyn RangeTombstoneLookup>],
    /// Receives the place of a row's first cell before the sink gets the cell, if
    /// requested.
    pub places: Option<&'a PlaceNote>,
    /// The read will not be continued where it ends, so entries that can no longer
    /// affect it are not examined.
    pub once: bool,
}

impl<C: Cursor> Reader<'_, C> {
    /// Resumes the row that was begun after its last entry, in the same runs or in
    /// others with the same cells.
    pub fn resume(&mut self, same_runs: bool) -> Result<()> {
        if !same_runs || self.state.coverage_is_partial {
            self.state.coverage_is_partial = true;
            self.take_coverage()?;
            self.state.coverage_is_partial = false;
        }
        let parts = self.state.parts.expect("a row was begun");
        match self.state.restart {
            Restart::Entry => {
                self.aim_at_prefix(self.state.key.len());
                self.state.target.push(0);
            }
            Restart::Version(timestamp) => {
                self.aim_at_prefix(parts.column_end);
                key::push_seek_timestamp(&mut self.state.target, timestamp);
            }
            Restart::Row => {
                self.aim_at_prefix(parts.row_end);
                key::push_past(&mut self.state.target);
            }
        }
        self.merge.seek(&self.state.target)?;
        self.state.restart = Restart::Entry;
        Ok(())
    }

    /// Reloads the tombstones that cover the last entry: those seen before may have
    /// been dropped since, along with the txns of the cells they spared.
    fn take_coverage(&mut self) -> Result<()> {
        let parts = self.state.parts.expect("a row was begun");
        let snapshot = self.rules.snapshot;
        let row = &self.state.row;
        self.state.coverage.enter_row(covering(self.range_tombstones, row, snapshot));
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
        Ok(())
    }

    /// Loads the tombstones that directly follow a prefix of the last key.
    fn take_tombstones(&mut self, prefix_end: usize) -> Result<()> {
        // Tombstones newer than the snapshot sort first.
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

    /// Reads up to `bound` (exclusive) or until the budget is exhausted. So is a budget
    /// with a miss.
    pub fn read(
        &mut self,
        bound: Option<&[u8]>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        match self.read_entries(bound, budget, sink) {
            Err(Error::NotLocal(miss)) if !self.once => {
                self.state.interrupt();
                budget.miss = Some(miss);
                Ok(ReadEnd::Budget)
            }
            end => end,
        }
    }

    fn read_entries(
        &mut self,
        bound: Option<&[u8]>,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<ReadEnd> {
        let bound = bound.map(Bound::new);
        while self.merge.valid()
            && bound.as_ref().is_none_or(|bound| bound.is_after(self.merge.key()))
        {
            // Never stop between the operands of one version: they may be folded into
            // one entry, with the key of the newest, before the next call.
            if budget.spent() && self.state.pending.is_empty() {
                return Ok(ReadEnd::Budget);
            }
            let next = self.next_entry()?;
            if !self.state.pending.is_empty() && self.leaves_version(&next) {
                let flow = self.fold_pending(None, budget, sink)?;
                self.follow(flow, budget)?;
                continue;
            }
            if next.change <= Change::Row && self.row_limit_reached(budget) {
                return Ok(ReadEnd::Budget);
            }
            let value = self.merge.value();
            if value.len() > budget.value_bytes && self.may_return(&next) {
                budget.long_value = Some(value.len());
                return Ok(ReadEnd::Budget);
            }
            budget.pay_entry(value);
            self.enter(&next);
            self.take(&next, budget, sink)?;
            if self.is_over(budget) {
                break;
            }
        }
        if !self.state.pending.is_empty() && self.fold_pending(None, budget, sink)? == Flow::Stop {
            budget.stop();
        }
        self.row_limit_reached(budget);
        self.state.clear();
        Ok(ReadEnd::Bound)
    }

    /// Accounts for the row that ends; returns whether the row limit is reached.
    fn row_limit_reached(&mut self, budget: &mut ReadBudget) -> bool {
        self.state.end_row(budget);
        budget.rows == 0
    }

    /// Parses the current entry relative to the last one.
    fn next_entry(&self) -> Result<NextEntry> {
        let entry = self.merge.key();
        if let Some(last) = self.state.parts {
            let last_key = &self.state.key;
            let in_column = last.column_end > last.family_end
                && entry.len() > last.column_end
                && entry[..last.column_end] == last_key[..last.column_end];
            if in_column {
                let parts = last.parse_in_column(entry).ok_or_else(|| bad_key(entry))?;
                return Ok(NextEntry { parts, change: Change::None });
            }
            if last.is_next_row(last_key, entry) {
                let parts = last.parse_in_column(entry).ok_or_else(|| bad_key(entry))?;
                return Ok(NextEntry { parts, change: Change::NextRow });
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
            return Ok(NextEntry { parts, change });
        }
        let parts = KeyParts::parse(entry).ok_or_else(|| bad_key(entry))?;
        Ok(NextEntry { parts, change: Change::Row })
    }

    fn leaves_version(&self, next: &NextEntry) -> bool {
        next.change != Change::None
            || next.parts.level != Level::Cell
            || self.state.column.version != Some(next.parts.timestamp)
    }

    /// Makes the entry's row, family and column the current ones.
    fn enter(&mut self, next: &NextEntry) {
        let entry = self.merge.key();
        let state = &mut *self.state;
        let parts = &next.parts;
        if next.change <= Change::Row {
            key::unescape_into(parts.escaped_row(entry), &mut state.row);
            let snapshot = self.rules.snapshot;
            let row = &state.row;
            state.coverage.enter_row(covering(self.range_tombstones, row, snapshot));
            state.row_returned = false;
        }
        if next.change == Change::NextRow {
            // The family and the qualifier are those of the previous row.
            let since = state.family.map_or(Txn::ZERO, |at| self.rules.schema.since(at));
            state.coverage.begin_family_after(since);
            state.column = ColumnState { wanted: state.column.wanted, ..ColumnState::default() };
            state.key.clear();
            state.key.extend_from_slice(entry);
            state.parts = Some(*parts);
            return;
        }
        if next.change <= Change::Family {
            if next.change == Change::Family {
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
        if next.change <= Change::Column {
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

    fn take(
        &mut self,
        next: &NextEntry,
        budget: &mut ReadBudget,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let parts = &next.parts;
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
                return self.skip_covered(parts, budget);
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

    /// Adds a tombstone; skips those newer than the snapshot and those that a newer one
    /// makes redundant.
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

    /// Returns whether a newer entry of the same version has been returned.
    fn is_superseded(&self, parts: &KeyParts) -> bool {
        self.state.column.version == Some(parts.timestamp) && self.state.pending.is_empty()
    }

    /// Returns whether an unread entry may be a cell to return.
    #[cold]
    fn may_return(&self, next: &NextEntry) -> bool {
        let (parts, entry) = (&next.parts, self.merge.key());
        self.state.pending.is_empty()
            && parts.level == Level::Cell
            && parts.txn <= self.rules.snapshot
            && self.rules.columns.wants_family(parts.family(entry))
    }

    /// Returns whether everything requested has been returned.
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

    /// Returns whether nothing more of the current column can be returned.
    fn column_done(&self, parts: &KeyParts) -> bool {
        let too_old = parts.level == Level::Cell && parts.timestamp < self.rules.times.min;
        self.state.pending.is_empty() && (self.column_closed() || too_old)
    }

    /// Returns whether the requested number of versions of the current column has been
    /// returned.
    fn column_closed(&self) -> bool {
        self.state.column.closed
            || self.rules.versions.is_some_and(|most| self.state.column.returned >= most)
    }

    #[inline]
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
                self.fold_pending(Some(base), budget, sink)
            }
            Kind::Marker | Kind::Tombstone => self.fold_pending(None, budget, sink),
        }
    }

    /// Folds the pending operands onto their base, oldest first.
    fn fold_pending(
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

/// Applies purge and the caller's restrictions to the current version and returns it if
/// it passes.
fn show(
    state: &mut ReadState,
    rules: &ReadRules<'_>,
    txn: Txn,
    marker: bool,
    value: &[u8],
    budget: &mut ReadBudget,
    sink: &mut Sink<'_>,
) -> Flow {
    let timestamp = state.column.version.expect("a version has begun");
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

/// The error for an invalid key. Keys are validated when written and protected by
/// checksums.
fn bad_key(entry: &[u8]) -> Error {
    Error::CellDisorder(format!("\"{}\" is not a cell key", entry.escape_ascii()))
}
