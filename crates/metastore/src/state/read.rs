//! Reads ranges of keys at a revision, with all options of etcd's Range.

use bytes::Bytes;
use stele_engine::{BatchLimits, RowRange, Scan};

use super::retained::Seen;
use super::tail::{KeyView, Tail};
use super::{State, value_spec};
use crate::command::{Kv, Order, RangeQuery, Target};
use crate::error::{Error, Result};

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

/// How far back a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// To the compacted revision.
    Compacted,
    /// To the waterline, for an etcd client whose read has begun: Compact does
    /// not stop it.
    Begun,
    /// To the waterline.
    Retained,
}

/// A range being read in batches at one revision. A reader may pause for any
/// time between two batches: if the engine drops the snapshot of a partly read
/// row, the range is reopened after the last key.
pub struct RangeScan {
    scan: Option<Scan>,
    query: RangeQuery,
    floor: Floor,
    /// The revision being read.
    at: i64,
    /// The newest revision when the range was opened.
    revision: i64,
    /// The number of keys found, and of those passed to the sink.
    found: i64,
    given: i64,
    more: bool,
    count: Option<i64>,
    /// The last key found.
    last: Vec<u8>,
}

/// Keys and tails that are collected to be sorted.
type Kept = Vec<Kv>;

impl State {
    /// Returns the revision that a query reads, and the newest. Fails if the
    /// revision is no longer retained or does not exist yet.
    pub fn resolve(&self, wanted: i64, floor: Floor) -> Result<(i64, i64)> {
        let revision = self.revision();
        if wanted <= 0 {
            return Ok((revision, revision));
        }
        if wanted > revision {
            return Err(Error::FutureRevision);
        }
        self.check_floor(wanted, floor)?;
        Ok((wanted, revision))
    }

    pub(crate) fn check_floor(&self, at: i64, floor: Floor) -> Result<()> {
        match floor {
            Floor::Compacted if at < self.compacted() => {
                Err(Error::Compacted { compacted: self.compacted() })
            }
            Floor::Begun if at < self.waterline() => {
                Err(Error::Compacted { compacted: self.waterline() })
            }
            Floor::Retained if at < self.waterline() => {
                Err(Error::TooOld { revision: at, waterline: self.waterline() })
            }
            _ => Ok(()),
        }
    }

    /// Opens a range.
    pub fn open_range(&self, query: &RangeQuery, floor: Floor) -> Result<RangeScan> {
        let (at, revision) = self.resolve(query.revision, floor)?;
        let count = if query.count_only { Some(self.count(&query.range, at)?) } else { None };
        let done = query.count_only || query.range.is_empty();
        let scan =
            if done { None } else { Some(self.scan_of(query, at, query.range.rows(), 0)?) };
        let floor = if floor == Floor::Compacted { Floor::Begun } else { floor };
        Ok(RangeScan {
            scan,
            query: query.clone(),
            floor,
            at,
            revision,
            found: 0,
            given: 0,
            more: false,
            count,
            last: Vec::new(),
        })
    }

    /// Opens a scan of a query's rows, of which `found` have been read before.
    fn scan_of(&self, query: &RangeQuery, at: i64, rows: RowRange, found: i64) -> Result<Scan> {
        let mut spec = value_spec(at);
        spec.rows.push(rows);
        spec.reverse = streams(query) && query.order == Order::Descend;
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        spec.rows_max = rows_max(query).map(|rows| rows.saturating_sub(found));
        Ok(self.store.scan(self.tables.user, spec)?)
    }

    /// Passes all keys of a range to `sink`.
    pub fn range(
        &self,
        query: &RangeQuery,
        floor: Floor,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        if let Some(key) = query.range.single_key().filter(|_| !query.filters()) {
            return self.range_of_one(key, query, floor, sink);
        }
        let mut range = self.open_range(query, floor)?;
        loop {
            if let Some(summary) = range.next(self, usize::MAX, sink)? {
                return Ok(summary);
            }
        }
    }

    fn range_of_one(
        &self,
        key: &Bytes,
        query: &RangeQuery,
        floor: Floor,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        self.read_retained(query.revision, floor, |at, revision| {
            let mut count = 0;
            self.store.read_row(self.tables.user, key, &value_spec(at), |cell| {
                count += 1;
                if !query.count_only {
                    give(KeyView { key, tail: cell.value }, query.keys_only, sink);
                }
            })?;
            let summary = RangeSummary { more: false, count, revision };
            Ok(if count > 0 { Seen::All(summary) } else { Seen::MaybeLess(summary) })
        })
    }
}

/// Returns whether keys can be passed on as they are found.
fn streams(query: &RangeQuery) -> bool {
    query.target == Target::Key
}

/// Returns the number of keys to fetch; `None` is all. A filter, or an explicit
/// order by another field than the key, needs all keys; an implied order is
/// applied after the limit.
fn rows_max(query: &RangeQuery) -> Option<usize> {
    let limited = query.limit > 0
        && !query.filters()
        && (query.order == Order::None || query.target == Target::Key);
    let one_more = query.limit.saturating_add(1);
    limited.then(|| usize::try_from(one_more).unwrap_or(usize::MAX))
}

impl RangeScan {
    /// Returns the revision being read.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Returns whether keys are passed on as they are found, rather than
    /// collected first.
    pub fn streams(&self) -> bool {
        streams(&self.query)
    }

    /// Passes about `bytes_max` bytes of keys to `sink`. Returns the summary
    /// with the last of them.
    pub fn next(
        &mut self,
        state: &State,
        bytes_max: usize,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<Option<RangeSummary>> {
        if self.scan.is_some() && !streams(&self.query) {
            stele_grpc::offload::in_place(|| self.read_kept(state, sink))?;
        } else if !self.read_batch(state, bytes_max, sink)? {
            return Ok(None);
        }
        let count = match self.count {
            Some(count) => count,
            None if self.more => {
                let count = state.count(&self.query.range, self.at)?;
                state.check_floor(self.at, self.floor)?;
                count
            }
            None => self.found,
        };
        Ok(Some(RangeSummary { more: self.more, count, revision: self.revision }))
    }

    fn read_batch(
        &mut self,
        state: &State,
        bytes_max: usize,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<bool> {
        if self.scan.is_none() {
            return Ok(true);
        }
        let limits = BatchLimits { bytes: bytes_max.min(BATCH_BYTES), ..BatchLimits::default() };
        let end = loop {
            match self.next_batch(limits, sink) {
                Err(error) if is_expired(&error) => self.reopen(state)?,
                ended => break ended?,
            }
        };
        // The waterline may have passed the revision during the read, and
        // versions that should have been seen may be missing.
        state.check_floor(self.at, self.floor)?;
        Ok(end || self.more)
    }

    /// Returns whether that was the last batch.
    fn next_batch(
        &mut self,
        limits: BatchLimits,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let (query, given, more) = (&self.query, &mut self.given, &mut self.more);
        let (found, last) = (&mut self.found, &mut self.last);
        let filters = query.filters();
        let end = scan.next_batch(limits, &mut |cell| {
            let view = KeyView { key: cell.row, tail: cell.value };
            *found += 1;
            last.clear();
            last.extend_from_slice(cell.row);
            if filters && !matches(query, view) {
                return;
            }
            if query.limit > 0 && *given >= query.limit {
                *more = true;
                return;
            }
            *given += 1;
            give(view, query.keys_only, sink);
        })?;
        Ok(end.done)
    }

    /// Continues after the last key. The data is the same, because all of it is
    /// read at one revision.
    fn reopen(&mut self, state: &State) -> Result<()> {
        let mut rows = self.query.range.rows();
        if self.found > 0 && streams(&self.query) && self.query.order == Order::Descend {
            rows.end = Some(self.last.clone());
        } else if self.found > 0 {
            rows.start = [&self.last[..], &[0]].concat();
        }
        self.scan = Some(state.scan_of(&self.query, self.at, rows, self.found)?);
        Ok(())
    }

    /// Reads everything and passes it on in the requested order. Keeps only
    /// what the limit allows.
    fn read_kept(&mut self, state: &State, sink: &mut dyn FnMut(KeyView<'_>)) -> Result<()> {
        let limit = usize::try_from(self.query.limit).unwrap_or(0);
        let (mut kept, mut kept_bytes, mut matching) = (Kept::new(), 0, 0);
        loop {
            let mut batch = Kept::new();
            let done = self.next_kept(state, &mut batch)?;
            for kv in batch {
                kept_bytes += kv.key.len() + kv.tail.len();
                matching += 1;
                kept.push(kv);
            }
            let many = kept.len() > 2 * limit.max(KEPT_MIN) || kept_bytes > SORTED_BYTES_MAX / 2;
            if limit > 0 && kept.len() > limit && many {
                pick(&self.query, &mut kept);
                kept_bytes = kept.iter().map(|kv| kv.key.len() + kv.tail.len()).sum();
            }
            crate::command::within("bytes of a sorted range", kept_bytes, SORTED_BYTES_MAX)?;
            if done {
                break;
            }
        }
        self.scan = None;
        let limited = rows_max(&self.query).is_some() && self.found > self.query.limit;
        pick(&self.query, &mut kept);
        self.more = limit > 0 && matching > limit;
        self.count =
            Some(if limited { state.count(&self.query.range, self.at)? } else { self.found });
        state.check_floor(self.at, self.floor)?;
        kept.iter().for_each(|kv| give(kv.view(), self.query.keys_only, sink));
        Ok(())
    }

    /// Returns whether that was the last batch.
    fn next_kept(&mut self, state: &State, kept: &mut Kept) -> Result<bool> {
        loop {
            let Some(scan) = &mut self.scan else { return Ok(true) };
            let (query, found, last) = (&self.query, &mut self.found, &mut self.last);
            let filters = query.filters();
            let ended = scan.next_batch(BatchLimits::default(), &mut |cell| {
                let view = KeyView { key: cell.row, tail: cell.value };
                *found += 1;
                last.clear();
                last.extend_from_slice(cell.row);
                if !filters || matches(query, view) {
                    kept.push(Kv {
                        key: Bytes::copy_from_slice(view.key),
                        tail: Bytes::copy_from_slice(view.tail),
                    });
                }
            });
            match ended.map_err(Error::from) {
                Err(error) if is_expired(&error) => self.reopen(state)?,
                ended => {
                    let end = ended?;
                    state.check_floor(self.at, self.floor)?;
                    return Ok(end.done);
                }
            }
        }
    }
}

/// The maximum bytes kept of a range that is not sorted by key.
const SORTED_BYTES_MAX: usize = 64 << 20;
/// The minimum number of keys to sort before the end.
const KEPT_MIN: usize = 512;

/// The batch size of a range that is read at once: the response is written
/// during the read, so larger batches would only hold a snapshot longer.
const BATCH_BYTES: usize = 4 << 20;

fn give(view: KeyView<'_>, keys_only: bool, sink: &mut dyn FnMut(KeyView<'_>)) {
    if !keys_only {
        return sink(view);
    }
    let bare = Tail { value: &[], ..view.fields() }.encode();
    sink(KeyView { key: view.key, tail: &bare });
}

/// Filters, sorts and truncates the keys found in a range, which are in key
/// order. Returns whether the limit left out any.
pub fn pick(query: &RangeQuery, kept: &mut Vec<Kv>) -> bool {
    if query.filters() {
        kept.retain(|kv| matches(query, kv.view()));
    }
    let ascending = |a: &Kv, b: &Kv| match query.target {
        Target::Key => a.key.cmp(&b.key),
        Target::Version => a.view().version().cmp(&b.view().version()),
        Target::Create => a.view().create_revision().cmp(&b.view().create_revision()),
        Target::Mod => a.view().mod_revision().cmp(&b.view().mod_revision()),
        Target::Value => a.view().value().cmp(b.view().value()),
    };
    match (query.order, query.target) {
        (Order::None | Order::Ascend, Target::Key) => {}
        (Order::None | Order::Ascend, _) => kept.sort_by(ascending),
        (Order::Descend, _) => kept.sort_by(|a, b| ascending(b, a)),
    }
    let limit = usize::try_from(query.limit).unwrap_or(0);
    let more = limit > 0 && kept.len() > limit;
    if more {
        kept.truncate(limit);
    }
    more
}

/// Returns whether a key passes the filters of a query.
fn matches(query: &RangeQuery, view: KeyView<'_>) -> bool {
    let fields = view.fields();
    within(fields.mod_revision, query.mod_min, query.mod_max)
        && within(fields.create_revision, query.create_min, query.create_max)
}

/// Returns whether the engine dropped the snapshot of a row that a reader left
/// for too long.
pub(crate) fn is_expired(error: &Error) -> bool {
    let expired =
        |error: &stele_engine::Error| matches!(error, stele_engine::Error::SnapshotExpired { .. });
    matches!(error, Error::Engine(error) if expired(error))
}

fn within(value: i64, min: i64, max: i64) -> bool {
    (min == 0 || value >= min) && (max == 0 || value <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, KeyRange, Put};
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
            let end = range.next(state, 100 << 10, &mut |view| {
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
