//! The view that the proposals of an entry have: the stored state as of the
//! overlay's base, with the changes of the entry on top.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_engine::{BatchLimits, Flow, RowRange};

use super::Overlay;
use super::entry::KeyChange;
use crate::command::RangeQuery;
use crate::error::Result;
use crate::key::{KeyRange, KeyView, Tail};
use crate::state::{Change, KeyLockInfo, RangeSummary, Selection, tables, value_spec};

/// How a range is read.
#[derive(Clone, Copy, Default)]
pub struct Bounds {
    /// The number of keys that are needed; `None` is all.
    pub rows_max: Option<usize>,
    /// Whether the keys come in descending order.
    pub reverse: bool,
}

impl Overlay<'_> {
    /// Returns the newest tail of a key.
    pub fn newest(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.keys.get(key).and_then(|change| change.versions.last()) {
            Some((_, tail)) => Ok(tail.clone()),
            None => self.state.get_by(key, &self.at_base),
        }
    }

    /// Executes a range query on the view, and passes the selected keys to
    /// `sink`.
    pub fn range(
        &self,
        query: &RangeQuery,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        let (range, newest) = (&query.range, self.revision());
        let at = if query.revision <= 0 { newest } else { query.revision };
        if query.count_only {
            let count = self.count_at(range, at)?;
            return Ok(RangeSummary { more: false, count, revision: newest });
        }
        // Bounded before: by the limit on the results of a transaction.
        let mut selection = Selection::new(query, usize::MAX);
        let bounds = Bounds { rows_max: selection.rows_max(), reverse: selection.is_reversed() };
        self.each(range, at, bounds, &mut |view| {
            selection.offer(view, sink);
            if selection.is_complete() { Flow::Stop } else { Flow::Continue }
        })?;
        selection.finish(sink);
        let count = match selection.count() {
            Some(count) => count,
            None => self.count_at(range, at)?,
        };
        Ok(selection.summary(count, newest))
    }

    /// Passes keys and tails of a range at a revision to `sink`, in key order,
    /// until it returns `Stop`: at least the first `rows_max`.
    pub fn each(
        &self,
        range: &KeyRange,
        revision: i64,
        bounds: Bounds,
        sink: &mut dyn FnMut(KeyView<'_>) -> Flow,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if let Some(key) = range.single_key() {
            return self.at(key, revision, &mut |view| {
                sink(view);
            });
        }
        let Bounds { rows_max, reverse } = bounds;
        let rows = range.rows();
        let changed = self.keys.range::<[u8], _>(key_bounds(&rows));
        let mut changed: Vec<_> =
            changed.filter_map(|(key, change)| Some((&key[..], change.at(revision)?))).collect();
        if reverse {
            changed.reverse();
        }
        let mut spec = value_spec(revision.min(self.base));
        spec.rows.push(rows);
        spec.reverse = reverse;
        // Keys that the entry deleted are still in the store and count as rows
        // there.
        spec.rows_max = rows_max.map(|rows| rows.saturating_add(changed.len()));
        let reaches = |key: &[u8], row: &[u8]| if reverse { key >= row } else { key <= row };
        let mut changed = changed.into_iter().peekable();
        let (mut overlaid, mut flow) = (None, Flow::Continue);
        let mut scan = self.state.store().scan(self.state.tables.user, spec)?;
        loop {
            let end = scan.next_batch(BatchLimits::default(), &mut |cell| {
                while let Some((key, tail)) = changed.next_if(|(key, _)| reaches(key, cell.row)) {
                    overlaid = Some(key);
                    if pass_changed(key, tail, sink) == Flow::Stop {
                        flow = Flow::Stop;
                        return flow;
                    }
                }
                if overlaid != Some(cell.row) {
                    flow = sink(KeyView { key: cell.row, tail: cell.value });
                }
                flow
            })?;
            if flow == Flow::Stop {
                return Ok(());
            }
            if end.done {
                break;
            }
        }
        for (key, tail) in changed {
            if pass_changed(key, tail, sink) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Passes one key at a revision to `sink`, if it exists.
    fn at(&self, key: &[u8], revision: i64, sink: &mut dyn FnMut(KeyView<'_>)) -> Result<()> {
        if let Some(tail) = self.keys.get(key).and_then(|change| change.at(revision)) {
            if let Some(tail) = tail {
                sink(KeyView { key, tail });
            }
            return Ok(());
        }
        let older = (revision < self.base).then(|| value_spec(revision));
        let spec = older.as_ref().unwrap_or(&self.at_base);
        self.state.store().read_row(self.state.tables.user, key, spec, |cell| {
            sink(KeyView { key, tail: cell.value });
        })?;
        Ok(())
    }

    /// Returns the approximate bytes of the first `rows_max` keys and values of
    /// a range at a revision. Stops counting above `bytes_max`.
    pub fn measure(
        &self,
        range: &KeyRange,
        revision: i64,
        rows_max: Option<usize>,
        bytes_max: usize,
    ) -> Result<usize> {
        if range.is_empty() {
            return Ok(0);
        }
        if let Some(key) = range.single_key() {
            return self.measure_one(key, revision);
        }
        let rows = range.rows();
        let changed = self.keys.range::<[u8], _>(key_bounds(&rows));
        let changed = changed
            .filter_map(|(key, change)| Some(key.len() + change.at(revision)?.as_ref()?.len()));
        let mut bytes: usize = changed.sum();
        let mut spec = value_spec(revision.min(self.base));
        spec.rows.push(rows);
        spec.rows_max = rows_max;
        let mut scan = self.state.store().scan(self.state.tables.user, spec)?;
        loop {
            let end = scan.next_batch(BatchLimits::default(), &mut |cell| {
                if !self.has_changed(cell.row) {
                    bytes += cell.row.len() + cell.value.len();
                }
                if bytes > bytes_max { Flow::Stop } else { Flow::Continue }
            })?;
            if end.done || bytes > bytes_max {
                return Ok(bytes);
            }
        }
    }

    /// Returns the bytes of one key and its value at a revision.
    fn measure_one(&self, key: &[u8], revision: i64) -> Result<usize> {
        let mut bytes = 0;
        let change = self.keys.get(key).filter(|change| !change.versions.is_empty());
        if change.is_none_or(|change| change.at(revision).is_some()) {
            self.at(key, revision, &mut |view| bytes = view.key.len() + view.tail.len())?;
        }
        Ok(bytes)
    }

    /// Returns the number of keys in a range at a revision.
    fn count_at(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        if revision == self.revision() {
            return self.count(range);
        }
        let mut count = 0;
        self.each(range, revision, Bounds::default(), &mut |_| {
            count += 1;
            Flow::Continue
        })?;
        Ok(count)
    }

    /// Returns the number of keys in a range at the newest revision.
    pub fn count(&self, range: &KeyRange) -> Result<i64> {
        let stored = self.state.count(range, self.base)?;
        if range.is_empty() {
            return Ok(0);
        }
        let changed = self.keys.range::<[u8], _>(key_bounds(&range.rows()));
        Ok(stored + changed.map(|(_, change)| change.growth()).sum::<i64>())
    }

    /// Returns the current lock of a key, which is free if none is stored.
    pub fn lock(&self, key: &[u8]) -> Result<KeyLockInfo> {
        match self.keys.get(key).and_then(|change| change.locks.last()) {
            Some((_, info, _)) => Ok(info.clone()),
            None => Ok(self.state.lock_info_at(key, self.base)?.unwrap_or_default()),
        }
    }

    /// Returns the keys attached to a lease, in order.
    pub fn lease_keys(&self, id: i64) -> Result<Vec<Bytes>> {
        let rows = self.state.owned_rows(self.state.tables.lease_keys, id)?;
        Ok(self.owned_keys(id, rows, &self.lease_keys))
    }

    /// Returns the first keys attached to a lease: at least `keys_max` or about
    /// `bytes_max` bytes, if there are that many.
    pub fn lease_keys_some(
        &self,
        id: i64,
        keys_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>> {
        let table = self.state.tables.lease_keys;
        // Keys that the entry detached are still in the store and count as
        // rows there.
        let prefix = RowRange::prefix(&tables::owned_row(id, b""));
        let changed = self.lease_keys.range::<[u8], _>(key_bounds(&prefix));
        let (count, bytes) =
            changed.fold((0, 0), |(count, bytes), (row, _)| (count + 1, bytes + row.len()));
        let rows = self.state.owned_rows_some(table, id, keys_max + count, bytes_max + bytes)?;
        Ok(self.owned_keys(id, rows, &self.lease_keys))
    }

    /// Returns the keys whose locks a session holds or waits for, in order.
    pub fn lock_keys(&self, session: i64) -> Result<Vec<Bytes>> {
        let rows = self.state.owned_rows(self.state.tables.lock_keys, session)?;
        Ok(self.owned_keys(session, rows, &self.lock_keys))
    }

    /// Returns a change that the entry made to a key in the range after a
    /// revision.
    pub fn changed_in(&self, range: &KeyRange, after: i64) -> Option<&Change> {
        let newer = self.changes.iter().map(|(change, _)| change);
        let mut newer = newer.filter(|change| change.revision > after && change.is_of_value());
        newer.find(|change| range.contains(&change.key))
    }

    /// Returns the previous tail for an event: the one before the event's
    /// revision. `prev` is the newest tail, which may be of the same revision.
    pub(super) fn tail_before(&self, key: &[u8], revision: i64, prev: &Bytes) -> Option<Bytes> {
        if Tail::parse(prev).mod_revision < revision {
            return Some(prev.clone());
        }
        let versions = self.keys.get(key).map_or(&[][..], |change| &change.versions);
        match versions.iter().rev().find(|(at, _)| *at < revision) {
            Some((_, tail)) => tail.clone(),
            // Only for keys that one transaction both puts and deletes.
            None => self.state.get_by(key, &self.at_base).ok().flatten(),
        }
    }

    fn owned_keys(
        &self,
        owner: i64,
        mut rows: BTreeSet<Vec<u8>>,
        changed: &BTreeMap<Vec<u8>, bool>,
    ) -> Vec<Bytes> {
        let range = RowRange::prefix(&tables::owned_row(owner, b""));
        for (row, there) in changed.range::<[u8], _>(key_bounds(&range)) {
            if *there {
                rows.insert(row.clone());
            } else {
                rows.remove(row);
            }
        }
        rows.iter().map(|row| Bytes::copy_from_slice(&row[tables::OWNER_BYTES..])).collect()
    }
}

impl KeyChange {
    /// Returns the version of the key that the entry wrote at a revision; `None` if it has
    /// none.
    fn at(&self, revision: i64) -> Option<&Option<Bytes>> {
        let upto = self.versions.iter().rev().find(|(at, _)| *at <= revision);
        upto.map(|(_, tail)| tail)
    }

    /// Returns whether the entry has put the key and not deleted it since.
    pub fn is_alive(&self) -> bool {
        self.versions.last().is_some_and(|(_, tail)| tail.is_some())
    }

    /// Returns 1 if the entry created the key, -1 if it deleted it, otherwise
    /// 0.
    pub(super) fn growth(&self) -> i64 {
        let Some((_, newest)) = self.versions.last() else { return 0 };
        i64::from(newest.is_some()) - i64::from(self.lives_in_base)
    }
}

/// Passes a key that the entry changed to `sink`, unless it was deleted.
fn pass_changed(
    key: &[u8],
    tail: &Option<Bytes>,
    sink: &mut dyn FnMut(KeyView<'_>) -> Flow,
) -> Flow {
    tail.as_ref().map_or(Flow::Continue, |tail| sink(KeyView { key, tail }))
}

type KeyBounds<'r> = (std::ops::Bound<&'r [u8]>, std::ops::Bound<&'r [u8]>);

pub fn key_bounds(rows: &RowRange) -> KeyBounds<'_> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    (Included(&rows.start[..]), rows.end.as_ref().map_or(Unbounded, |end| Excluded(&end[..])))
}
