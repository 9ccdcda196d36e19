//! Range tombstones: deletes of whole ranges of rows.
//!
//! They are stored outside the key space, as a sorted list of disjoint spans. Each span
//! keeps every txn at which it was deleted, so that it can serve any snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::txn::Txn;

/// A range of rows and the txns at which the whole range was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub range: RowRange,
    /// Newest first, without duplicates.
    pub txns: Vec<Txn>,
}

/// Sorted, disjoint spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    list: Vec<Span>,
}

impl Spans {
    /// Takes spans read from a file; `None` if they are unsorted, overlapping or empty.
    pub fn from_sorted(list: Vec<Span>) -> Option<Spans> {
        let sound = |span: &Span| {
            !span.range.is_empty()
                && !span.txns.is_empty()
                && span.txns.windows(2).all(|pair| pair[0] > pair[1])
        };
        let apart = |pair: &[Span]| {
            pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.start)
        };
        (list.iter().all(sound) && list.windows(2).all(apart)).then_some(Spans { list })
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.list.iter()
    }

    /// Returns the size in memory, for accounting.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(Span::bytes).sum()
    }

    /// Adds a delete of `range` at `txn`. Copies the list; use a [`SpanMap`] to collect
    /// many deletes.
    pub fn insert(&mut self, range: &RowRange, txn: Txn) {
        let mut map = SpanMap::from(std::mem::take(self));
        map.insert(range, &[txn]);
        *self = map.to_spans();
    }

    /// Adds every span of another list.
    pub fn merge(&mut self, other: &Spans) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.list.clone_from(&other.list);
            return;
        }
        let mut map = SpanMap::from(std::mem::take(self));
        for span in &other.list {
            map.insert(&span.range, &span.txns);
        }
        *self = map.to_spans();
    }

    /// Concatenates lists whose ranges ascend and do not overlap.
    pub fn concat(lists: &[Arc<Spans>]) -> Spans {
        let list: Vec<Span> = lists.iter().flat_map(|spans| spans.iter().cloned()).collect();
        Spans::from_sorted(list).expect("the lists ascend and do not overlap")
    }

    /// Returns the newest delete at or before `snapshot` that covers `row`.
    pub fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        newest_visible(&self.span_at(row)?.txns, snapshot)
    }

    /// Returns every delete that covers `row`, newest first.
    pub fn txns_over(&self, row: &[u8]) -> impl Iterator<Item = Txn> {
        self.span_at(row).into_iter().flat_map(|span| span.txns.iter().copied())
    }

    fn span_at(&self, row: &[u8]) -> Option<&Span> {
        let at = self.list.partition_point(|span| span.range.start.as_slice() <= row);
        self.list[..at].last().filter(|span| span.range.contains(row))
    }

    /// Keeps only the txns that `keep` returns; drops spans without any.
    pub fn retain(&mut self, mut keep: impl FnMut(&RowRange, &[Txn]) -> Vec<Txn>) {
        self.list.retain_mut(|span| {
            span.txns = keep(&span.range, &span.txns);
            !span.txns.is_empty()
        });
    }

    /// Returns the part of the list inside `range`.
    pub fn clipped(&self, range: &RowRange) -> Spans {
        if range.is_empty() {
            return Spans::default();
        }
        let first = self
            .list
            .partition_point(|span| span.range.end.as_ref().is_some_and(|end| *end <= range.start));
        let inside = self.list[first..]
            .partition_point(|span| range.end.as_ref().is_none_or(|end| span.range.start < *end));
        let clip =
            |span: &Span| Span { range: span.range.intersection(range), txns: span.txns.clone() };
        Spans { list: self.list[first..first + inside].iter().map(clip).collect() }
    }

    /// Returns the hull: from the start of the first span to the end of the last.
    pub fn hull(&self) -> Option<RowRange> {
        let (first, last) = (self.list.first()?, self.list.last()?);
        Some(RowRange { start: first.range.start.clone(), end: last.range.end.clone() })
    }

    pub fn txn_max(&self) -> Option<Txn> {
        self.list.iter().map(|span| span.txns[0]).max()
    }

    pub fn txn_min(&self) -> Option<Txn> {
        self.list.iter().filter_map(|span| span.txns.last().copied()).min()
    }
}

impl Span {
    fn bytes(&self) -> usize {
        size_of::<Span>()
            + self.range.start.len()
            + self.range.end.as_ref().map_or(0, Vec::len)
            + self.txns.len() * size_of::<Txn>()
    }
}

/// Range tombstones as readers query them.
pub trait RangeDeletes: Send + Sync {
    /// Returns the newest delete at or before `snapshot` that covers `row`.
    fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn>;

    /// Like `covering`, but also returns a range of rows around `row` that the delete
    /// covers.
    fn span_over(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)>;
}

impl RangeDeletes for Spans {
    fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        Spans::covering(self, row, snapshot)
    }

    fn span_over(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)> {
        let span = self.span_at(row)?;
        newest_visible(&span.txns, snapshot).map(|txn| (span.range.clone(), txn))
    }
}

/// Returns the first of descending txns that is at or before `snapshot`.
fn newest_visible(txns: &[Txn], snapshot: Txn) -> Option<Txn> {
    txns.get(txns.partition_point(|&txn| txn > snapshot)).copied()
}

/// A growing set of spans: a delete costs the logarithm of their number, plus one step
/// for each span that it overlaps.
#[derive(Debug, Default)]
pub struct SpanMap {
    /// Keyed by the start of the range.
    spans: BTreeMap<Vec<u8>, Tail>,
    bytes: usize,
    #[cfg(test)]
    steps: usize,
}

/// A span without its start.
#[derive(Debug)]
struct Tail {
    end: Option<Vec<u8>>,
    txns: Vec<Txn>,
}

impl From<Spans> for SpanMap {
    fn from(spans: Spans) -> SpanMap {
        let bytes = spans.bytes();
        let entry = |span: Span| (span.range.start, Tail { end: span.range.end, txns: span.txns });
        let spans = spans.list.into_iter().map(entry).collect();
        SpanMap {
            spans,
            bytes,
            #[cfg(test)]
            steps: 0,
        }
    }
}

impl SpanMap {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the size of the spans in memory, for accounting.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds deletes of `range`; `txns` must descend.
    pub fn insert(&mut self, range: &RowRange, txns: &[Txn]) {
        if range.is_empty() {
            return;
        }
        self.split_at(&range.start);
        if let Some(end) = &range.end {
            self.split_at(end);
        }
        let mut gaps = Vec::new();
        let mut rest = Some(range.start.as_slice());
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let inside = self.spans.range_mut::<[u8], _>((Bound::Included(&range.start[..]), end));
        for (start, tail) in inside {
            if let Some(at) = rest.filter(|at| *at < start.as_slice()) {
                gaps.push(RowRange::new(at, start.as_slice()));
            }
            let txns_before = tail.txns.len();
            tail.add(txns);
            self.bytes += (tail.txns.len() - txns_before) * size_of::<Txn>();
            rest = tail.end.as_deref();
            #[cfg(test)]
            {
                self.steps += 1;
            }
        }
        if let Some(at) = rest {
            gaps.push(RowRange { start: at.to_vec(), end: range.end.clone() });
        }
        for gap in gaps {
            self.add(gap, txns.to_vec());
        }
    }

    /// Splits the span that contains `row`, so that no span crosses its start.
    fn split_at(&mut self, row: &[u8]) {
        let before = (Bound::Unbounded, Bound::Excluded(row));
        let Some((_, tail)) = self.spans.range_mut::<[u8], _>(before).next_back() else { return };
        if tail.end.as_deref().is_some_and(|end| end <= row) {
            return;
        }
        let end = tail.end.replace(row.to_vec());
        let txns = tail.txns.clone();
        self.bytes = self.bytes + row.len() - end.as_ref().map_or(0, Vec::len);
        self.add(RowRange { start: row.to_vec(), end }, txns);
    }

    /// Adds a span where there is none yet.
    fn add(&mut self, range: RowRange, txns: Vec<Txn>) {
        if range.is_empty() {
            return;
        }
        let span = Span { range, txns };
        self.bytes += span.bytes();
        self.spans.insert(span.range.start, Tail { end: span.range.end, txns: span.txns });
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    pub fn to_spans(&self) -> Spans {
        let span = |(start, tail): (&Vec<u8>, &Tail)| Span {
            range: RowRange { start: start.clone(), end: tail.end.clone() },
            txns: tail.txns.clone(),
        };
        Spans { list: self.spans.iter().map(span).collect() }
    }

    fn span_at(&self, row: &[u8]) -> Option<(&Vec<u8>, &Tail)> {
        let up_to = (Bound::Unbounded, Bound::Included(row));
        let (start, tail) = self.spans.range::<[u8], _>(up_to).next_back()?;
        tail.end.as_deref().is_none_or(|end| row < end).then_some((start, tail))
    }

    pub fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        newest_visible(&self.span_at(row)?.1.txns, snapshot)
    }

    pub fn span_over(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)> {
        let (start, tail) = self.span_at(row)?;
        let range = || RowRange { start: start.clone(), end: tail.end.clone() };
        newest_visible(&tail.txns, snapshot).map(|txn| (range(), txn))
    }
}

impl Tail {
    /// Adds descending txns.
    fn add(&mut self, txns: &[Txn]) {
        for &txn in txns {
            let at = self.txns.partition_point(|&newer| newer > txn);
            if self.txns.get(at) != Some(&txn) {
                self.txns.insert(at, txn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn txn(number: u64) -> Txn {
        Txn::from_raw(number).unwrap()
    }

    proptest! {
        #[test]
        fn spans_answer_like_a_list_of_deletes(
            deletes in prop::collection::vec((0u8..12, 0u8..14, 1u64..20), 0..12),
        ) {
            let mut spans = Spans::default();
            let range = |start: u8, end: u8| RowRange {
                start: vec![start],
                end: (end < 13).then(|| vec![end]),
            };
            for &(start, end, number) in &deletes {
                spans.insert(&range(start, end), txn(number));
            }
            prop_assert_eq!(Spans::from_sorted(spans.list.clone()), Some(spans.clone()));
            let map = SpanMap::from(spans.clone());
            prop_assert_eq!(map.to_spans(), spans.clone());
            let mut halves = [Spans::default(), Spans::default()];
            for (at, &(start, end, number)) in deletes.iter().enumerate() {
                halves[at % 2].insert(&range(start, end), txn(number));
            }
            let [mut whole, other] = halves;
            whole.merge(&other);
            for row in 0..16u8 {
                prop_assert!(whole.txns_over(&[row]).eq(spans.txns_over(&[row])));
            }
            for row in 0..16u8 {
                for snapshot in 0..21 {
                    let expected = deletes
                        .iter()
                        .filter(|d| range(d.0, d.1).contains(&[row]) && d.2 <= snapshot)
                        .map(|d| txn(d.2))
                        .max();
                    prop_assert_eq!(spans.covering(&[row], txn(snapshot)), expected);
                    prop_assert_eq!(map.covering(&[row], txn(snapshot)), expected);
                    let over = map.span_over(&[row], txn(snapshot));
                    prop_assert_eq!(&over, &spans.span_over(&[row], txn(snapshot)));
                    prop_assert!(over.is_none_or(|(rows, _)| rows.contains(&[row])));
                }
            }
        }
    }

    #[test]
    fn the_bytes_of_a_map_are_those_of_its_list() {
        let mut map = SpanMap::default();
        for (start, end, number) in
            [(0u8, 9u8, 1u64), (3, 5, 2), (4, 12, 3), (0, 2, 4), (20, 30, 5)]
        {
            map.insert(&RowRange::new([start, 0], [end, 0, 0]), &[txn(number)]);
            map.insert(&RowRange { start: vec![end], end: None }, &[txn(number + 10)]);
            assert_eq!(map.bytes(), map.to_spans().bytes());
        }
    }

    #[test]
    fn a_delete_of_a_range_costs_the_same_however_many_there_are() {
        let steps = |count: u32| {
            let mut map = SpanMap::default();
            for number in 0..count {
                // From both ends toward the middle.
                let at = if number % 2 == 0 { number } else { u32::MAX - number };
                let range = RowRange::new(at.to_be_bytes(), [&at.to_be_bytes()[..], b"x"].concat());
                map.insert(&range, &[txn(u64::from(number) + 1)]);
            }
            map.steps
        };
        assert_eq!((steps(1000), steps(4000)), (1000, 4000));
    }
}
