//! Reads ranges of keys at a revision, in batches.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{BatchLimits, RowRange, Scan};

use super::retained::{Floor, ReadOutcome};
use super::selection::{Selection, pass_on};
use super::{MemberState, value_spec};
use crate::command::RangeQuery;
use crate::error::{Error, Result};
use crate::key::KeyView;

/// The maximum bytes kept of a range that is not sorted by key.
const SORTED_BYTES_MAX: usize = 64 << 20;

/// The batch size of a range that is read at once: the response is written
/// during the read, so larger batches would only hold a snapshot longer.
const BATCH_BYTES: usize = 4 << 20;

/// The summary of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSummary {
    /// Whether the limit left out keys.
    pub more: bool,
    /// The number of keys in the range at that revision, regardless of limit
    /// and filters.
    pub count: i64,
    /// The newest revision when the read began.
    pub revision: i64,
}

/// A range being read in batches at one revision. A reader may pause for any
/// time between two batches: if the engine drops the snapshot of a partly read
/// row, the range is reopened after the last key.
pub struct RangeScan {
    state: Arc<MemberState>,
    /// `None` if there is nothing more to read.
    scan: Option<Scan>,
    selection: Selection,
    floor: Floor,
    /// The revision being read.
    at: i64,
    /// The newest revision when the range was opened.
    revision: i64,
    /// The number of keys in the range, once they are counted.
    count: Option<i64>,
    /// The last key found.
    last: Vec<u8>,
}

impl MemberState {
    /// Opens a range.
    pub fn open_range(self: &Arc<Self>, query: &RangeQuery, floor: Floor) -> Result<RangeScan> {
        let (at, revision) = self.resolve(query.revision, floor)?;
        let count = if query.count_only { Some(self.count(&query.range, at)?) } else { None };
        let done = query.count_only || query.range.is_empty();
        let selection = Selection::new(query, SORTED_BYTES_MAX);
        let scan =
            if done { None } else { Some(self.scan_for(&selection, at, query.range.rows())?) };
        let floor = if floor == Floor::Compacted { Floor::InProgress } else { floor };
        let (state, last) = (self.clone(), Vec::new());
        Ok(RangeScan { state, scan, selection, floor, at, revision, count, last })
    }

    /// Opens a scan of rows that a selection has not found yet.
    fn scan_for(&self, selection: &Selection, at: i64, rows: RowRange) -> Result<Scan> {
        let mut spec = value_spec(at);
        spec.rows.push(rows);
        spec.reverse = selection.is_reversed();
        let found = usize::try_from(selection.found()).unwrap_or(usize::MAX);
        spec.rows_max = selection.rows_max().map(|rows| rows.saturating_sub(found));
        Ok(self.store().scan(self.tables.user, spec)?)
    }

    /// Passes all keys of a range to `sink`.
    pub fn range(
        self: &Arc<Self>,
        query: &RangeQuery,
        floor: Floor,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        if let Some(key) = query.range.single_key().filter(|_| !query.filters()) {
            return self.range_of_one(key, query, floor, sink);
        }
        let mut range = self.open_range(query, floor)?;
        loop {
            if let Some(summary) = range.next(usize::MAX, sink)? {
                return Ok(summary);
            }
        }
    }

    /// Reads a single key without opening a scan.
    fn range_of_one(
        &self,
        key: &Bytes,
        query: &RangeQuery,
        floor: Floor,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.read_retained(query.revision, floor, |at, revision| {
            let mut count = 0;
            self.store().read_row(self.tables.user, key, &value_spec(at), |cell| {
                count += 1;
                if !query.count_only {
                    pass_on(KeyView { key, tail: cell.value }, query.keys_only, sink);
                }
            })?;
            let summary = RangeSummary { more: false, count, revision };
            Ok(if count > 0 {
                ReadOutcome::Complete(summary)
            } else {
                ReadOutcome::Tentative(summary)
            })
        })
    }
}

impl RangeScan {
    /// Returns the revision being read.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Returns whether keys are passed on as they are found, rather than
    /// collected first.
    pub fn streams(&self) -> bool {
        self.selection.streams()
    }

    /// Passes about `bytes_max` bytes of keys to `sink`. Returns the summary
    /// with the last of them.
    pub fn next(
        &mut self,
        bytes_max: usize,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<Option<RangeSummary>> {
        if self.scan.is_some() && !self.streams() {
            stele_grpc::offload::in_place(|| self.read_sorted(sink))?;
        } else if self.scan.is_some() {
            let bytes = bytes_max.min(BATCH_BYTES);
            let limits = BatchLimits { bytes, ..BatchLimits::default() };
            let done = self.read_batch(limits, sink)?;
            if !done && !self.selection.has_more() {
                return Ok(None);
            }
        }
        let count = match self.count.or(self.selection.count()) {
            Some(count) => count,
            None => self.count_all()?,
        };
        Ok(Some(self.selection.summary(count, self.revision)))
    }

    /// Reads everything and passes it on in the requested order.
    fn read_sorted(&mut self, sink: &mut dyn FnMut(KeyView<'_>)) -> Result<()> {
        loop {
            let done = self.read_batch(BatchLimits::default(), sink)?;
            self.selection.end_batch()?;
            if done {
                break;
            }
        }
        self.scan = None;
        self.count = Some(match self.selection.count() {
            Some(count) => count,
            None => self.count_all()?,
        });
        self.selection.finish(sink);
        Ok(())
    }

    /// Reads a batch. Returns whether it was the last.
    fn read_batch(
        &mut self,
        limits: BatchLimits,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<bool> {
        let done = loop {
            match self.next_batch(limits, sink) {
                Err(error) if is_expired(&error) => self.reopen()?,
                ended => break ended?,
            }
        };
        // The waterline may have passed the revision during the read, and
        // versions that should have been seen may be missing.
        self.state.check_floor(self.at, self.floor)?;
        Ok(done)
    }

    fn next_batch(
        &mut self,
        limits: BatchLimits,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let (selection, last) = (&mut self.selection, &mut self.last);
        let end = scan.next_batch(limits, &mut |cell| {
            last.clear();
            last.extend_from_slice(cell.row);
            selection.offer(KeyView { key: cell.row, tail: cell.value }, sink);
        })?;
        Ok(end.done)
    }

    /// Continues after the last key. The data is the same, because all of it is
    /// read at one revision.
    fn reopen(&mut self) -> Result<()> {
        let mut rows = self.selection.query().range.rows();
        let started = self.selection.found() > 0;
        if started && self.selection.is_reversed() {
            rows.end = Some(self.last.clone());
        } else if started {
            rows.start = [&self.last[..], &[0]].concat();
        }
        self.scan = Some(self.state.scan_for(&self.selection, self.at, rows)?);
        Ok(())
    }

    /// Counts the keys of the range at the revision being read.
    fn count_all(&self) -> Result<i64> {
        let count = self.state.count(&self.selection.query().range, self.at)?;
        self.state.check_floor(self.at, self.floor)?;
        Ok(count)
    }
}

/// Returns whether the engine dropped the snapshot of a row that a reader left
/// for too long.
pub(crate) fn is_expired(error: &Error) -> bool {
    let expired =
        |error: &stele_engine::Error| matches!(error, stele_engine::Error::SnapshotExpired { .. });
    matches!(error, Error::Engine(error) if expired(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Put};
    use crate::key::KeyRange;
    use crate::machine::fixture::Fixture;

    #[test]
    fn a_filtered_range_is_given_out_as_it_is_found() {
        let member = Fixture::new();
        for key in ["a", "b", "c", "d"] {
            let put = Put::new(key, vec![7; 100 << 10]);
            member.propose(Command::Put(put)).unwrap();
        }
        let state = &member.parts.state;
        let query = RangeQuery { mod_min: 3, ..RangeQuery::new(KeyRange::all()) };
        let mut range = state.open_range(&query, Floor::Compacted).unwrap();
        assert!(range.streams());
        let (mut batches, mut keys) = (0, Vec::new());
        loop {
            batches += 1;
            let mut in_batch = 0;
            let end = range.next(100 << 10, &mut |view| {
                in_batch += 1;
                keys.push(view.key.to_vec());
            });
            assert!(in_batch <= 2, "{in_batch} large values at once");
            if end.unwrap().is_some() {
                break;
            }
        }
        assert_eq!(keys, [b"b", b"c", b"d"]);
        assert!(batches > 1);
    }
}
