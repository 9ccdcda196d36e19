//! Ranges of keys at a revision, with everything that etcd's Range can ask for.

use bytes::Bytes;
use stele_engine::{BatchLimits, RowRange, Scan};

use super::retained::Seen;
use super::tail::{KeyView, Tail};
use super::{State, value_spec};
use crate::command::{Kv, Order, RangeQuery, Target};
use crate::error::{Error, Result};

/// How a range ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSummary {
    /// There are more keys than the limit let through.
    pub more: bool,
    /// Keys in the range at that revision, whatever limit and filters say.
    pub count: i64,
    /// The store's newest revision when the reading began.
    pub revision: i64,
}

/// How far back a reader may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// To what etcd's Compact has left.
    Compacted,
    /// To where history begins, for an etcd client whose reading has begun:
    /// Compact does not stop it.
    Begun,
    /// To where history begins.
    Retained,
}

/// A range being read, batch by batch, at one revision. A reader may take as
/// long as it likes between two batches: when the engine has given up a row
/// that was begun, the range is opened again behind the last key.
pub struct RangeScan {
    scan: Option<Scan>,
    query: RangeQuery,
    floor: Floor,
    /// The revision that is read.
    at: i64,
    /// The newest revision when it was opened.
    revision: i64,
    /// Keys found, and those of them given out.
    found: i64,
    given: i64,
    more: bool,
    count: Option<i64>,
    /// The last key found.
    last: Vec<u8>,
}

/// Keys and tails, kept to be put in order.
type Kept = Vec<Kv>;

impl State {
    /// The revision that a query reads, which must not be gone or to come.
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

    /// Begins to read a range.
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

    /// A scan of rows of a query, of which `found` have been read before.
    fn scan_of(&self, query: &RangeQuery, at: i64, rows: RowRange, found: i64) -> Result<Scan> {
        let mut spec = value_spec(at);
        spec.rows.push(rows);
        spec.reverse = streams(query) && query.order == Order::Descend;
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        spec.rows_max = rows_max(query).map(|rows| rows.saturating_sub(found));
        Ok(self.store.scan(self.tables.user, spec)?)
    }

    /// Gives the keys of a range to `sink` in one go.
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

/// Whether keys can be given out as they are found.
fn streams(query: &RangeQuery) -> bool {
    query.target == Target::Key
}

/// How many keys to fetch. With a filter or an order of its own everything is
/// fetched, except that an order that is only implied comes after the limit.
fn rows_max(query: &RangeQuery) -> Option<usize> {
    let limited = query.limit > 0
        && !query.filters()
        && (query.order == Order::None || query.target == Target::Key);
    let one_more = query.limit.saturating_add(1);
    limited.then(|| usize::try_from(one_more).unwrap_or(usize::MAX))
}

impl RangeScan {
    /// The revision that is read.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Whether keys are given out as they are found, and not kept until all are.
    pub fn streams(&self) -> bool {
        streams(&self.query)
    }

    /// Gives some more keys to `sink`, about `bytes_max` of them. The summary
    /// comes with the last.
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
        // The line may have passed while the batch was read, and with it
        // versions that should have been seen.
        state.check_floor(self.at, self.floor)?;
        Ok(end || self.more)
    }

    /// Returns whether that was the last.
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

    /// Goes on behind the last key. It is the same data: what is read is of one
    /// revision.
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

    /// Reads everything, and gives it out in the order that was asked for. Only
    /// what the limit lets through is kept.
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

    /// Returns whether that was the last.
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

/// What is kept of a range that is sorted by anything but its keys.
const SORTED_BYTES_MAX: usize = 64 << 20;
/// Fewer keys are not worth sorting before the end.
const KEPT_MIN: usize = 512;

/// A batch of a range that is read in one go: the answer is being written
/// while it is read, so that more would only keep a snapshot longer.
const BATCH_BYTES: usize = 4 << 20;

fn give(view: KeyView<'_>, keys_only: bool, sink: &mut dyn FnMut(KeyView<'_>)) {
    if !keys_only {
        return sink(view);
    }
    let bare = Tail { value: &[], ..view.fields() }.encode();
    sink(KeyView { key: view.key, tail: &bare });
}

/// Filters, orders and cuts what was found of a range, in key order. Tells
/// whether the limit left something out.
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

/// Whether a key is within the bounds of a query.
fn matches(query: &RangeQuery, view: KeyView<'_>) -> bool {
    let fields = view.fields();
    within(fields.mod_revision, query.mod_min, query.mod_max)
        && within(fields.create_revision, query.create_min, query.create_max)
}

/// Whether the engine has given up a row that a reader left for too long.
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
