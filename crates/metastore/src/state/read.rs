//! Ranges of keys at a revision, with everything that etcd's Range can ask for.

use bytes::Bytes;
use stele_engine::{BatchLimits, Scan};

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
    /// To where history begins.
    Retained,
}

/// A range being read, batch by batch, at one revision. It holds nothing
/// between two batches.
pub struct RangeScan {
    scan: Option<Scan>,
    query: RangeQuery,
    /// The revision that is read.
    at: i64,
    /// The newest revision when it was opened.
    revision: i64,
    given: i64,
    more: bool,
    count: Option<i64>,
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

    fn check_floor(&self, at: i64, floor: Floor) -> Result<()> {
        match floor {
            Floor::Compacted if at < self.compacted() => {
                Err(Error::Compacted { compacted: self.compacted() })
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
        let scan = if done { None } else { Some(self.scan_of(query, at)?) };
        let query = query.clone();
        Ok(RangeScan { scan, query, at, revision, given: 0, more: false, count })
    }

    fn scan_of(&self, query: &RangeQuery, at: i64) -> Result<Scan> {
        let mut spec = value_spec(at);
        spec.rows.push(query.range.rows());
        spec.reverse = streams(query) && query.order == Order::Descend;
        spec.rows_max = rows_max(query);
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
        let (at, revision) = self.resolve(query.revision, floor)?;
        let mut count = 0;
        self.store.read_row(self.tables.user, key, &value_spec(at), |cell| {
            count += 1;
            if !query.count_only {
                give(KeyView { key, tail: cell.value }, query.keys_only, sink);
            }
        })?;
        Ok(RangeSummary { more: false, count, revision })
    }
}

/// Whether keys can be given out as they are found.
fn streams(query: &RangeQuery) -> bool {
    query.target == Target::Key && !query.filters()
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

    /// Gives some more keys to `sink`, about `bytes_max` of them. The summary
    /// comes with the last.
    pub fn next(
        &mut self,
        state: &State,
        bytes_max: usize,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<Option<RangeSummary>> {
        if self.scan.is_some() && !streams(&self.query) {
            self.read_kept(state, sink)?;
        } else if !self.read_batch(state, bytes_max, sink)? {
            return Ok(None);
        }
        let count = match self.count {
            Some(count) => count,
            None if self.more => state.count(&self.query.range, self.at)?,
            None => self.given,
        };
        Ok(Some(RangeSummary { more: self.more, count, revision: self.revision }))
    }

    fn read_batch(
        &mut self,
        state: &State,
        bytes_max: usize,
        sink: &mut dyn FnMut(KeyView<'_>),
    ) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(true) };
        let (query, given, more) = (&self.query, &mut self.given, &mut self.more);
        let limits = BatchLimits { bytes: bytes_max.min(BATCH_BYTES), ..BatchLimits::default() };
        let end = scan.next_batch(limits, &mut |cell| {
            if query.limit > 0 && *given >= query.limit {
                *more = true;
                return;
            }
            *given += 1;
            give(KeyView { key: cell.row, tail: cell.value }, query.keys_only, sink);
        })?;
        // The line may have passed while the batch was read, and with it
        // versions that should have been seen.
        state.check_floor(self.at, Floor::Retained)?;
        Ok(end.done)
    }

    fn read_kept(&mut self, state: &State, sink: &mut dyn FnMut(KeyView<'_>)) -> Result<()> {
        let mut kept = Kept::new();
        if let Some(mut scan) = self.scan.take() {
            loop {
                let end = scan.next_batch(BatchLimits::default(), &mut |cell| {
                    kept.push(Kv {
                        key: Bytes::copy_from_slice(cell.row),
                        tail: Bytes::copy_from_slice(cell.value),
                    });
                })?;
                state.check_floor(self.at, Floor::Retained)?;
                if end.done {
                    break;
                }
            }
        }
        let found = kept.len() as i64;
        let limited = rows_max(&self.query).is_some() && found > self.query.limit;
        self.more = pick(&self.query, &mut kept);
        self.count = Some(if limited { state.count(&self.query.range, self.at)? } else { found });
        kept.iter().for_each(|kv| give(kv.view(), self.query.keys_only, sink));
        Ok(())
    }
}

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
        kept.retain(|kv| {
            let fields = kv.view().fields();
            within(fields.mod_revision, query.mod_min, query.mod_max)
                && within(fields.create_revision, query.create_min, query.create_max)
        });
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

fn within(value: i64, min: i64, max: i64) -> bool {
    (min == 0 || value >= min) && (max == 0 || value <= max)
}
