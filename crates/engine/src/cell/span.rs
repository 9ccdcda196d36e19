//! Range tombstones: deletes of whole ranges of rows.
//!
//! They live outside the key space, as a sorted list of spans that do not
//! overlap. Each span keeps every txn at which it was deleted, so that any
//! snapshot can be answered.

use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::txn::Txn;

/// A range of rows and the txns at which all of it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub range: RowRange,
    /// Newest first, without repeats.
    pub txns: Vec<Txn>,
}

/// Sorted spans that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    list: Vec<Span>,
}

impl Spans {
    /// Takes spans read from a file; `None` when they are not sorted, overlap
    /// or are empty.
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

    /// Bytes this list takes in memory, for accounting.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(Span::bytes).sum()
    }

    /// Adds a delete of `range` at `txn`.
    pub fn insert(&mut self, range: &RowRange, txn: Txn) {
        if range.is_empty() {
            return;
        }
        let first = self
            .list
            .partition_point(|span| span.range.end.as_ref().is_some_and(|end| *end <= range.start));
        let last = first
            + self.list[first..].partition_point(|span| {
                range.end.as_ref().is_none_or(|end| span.range.start < *end)
            });
        let overlapped: Vec<Span> = self.list.drain(first..last).collect();
        let mut pieces = Vec::with_capacity(overlapped.len() * 2 + 3);
        let mut at = Some(range.start.clone());
        for span in overlapped {
            cut_one(span, range, txn, &mut at, &mut pieces);
        }
        if let Some(start) = at {
            let rest = RowRange { start, end: range.end.clone() };
            if !rest.is_empty() {
                pieces.push(Span { range: rest, txns: vec![txn] });
            }
        }
        self.list.splice(first..first, pieces);
    }

    /// Adds every span of another list.
    pub fn merge(&mut self, other: &Spans) {
        for span in &other.list {
            for &txn in &span.txns {
                self.insert(&span.range, txn);
            }
        }
    }

    /// Lists that lie one after the other, as one.
    pub fn concat(lists: &[Arc<Spans>]) -> Spans {
        let list: Vec<Span> = lists.iter().flat_map(|spans| spans.iter().cloned()).collect();
        Spans::from_sorted(list).expect("the lists ascend and do not overlap")
    }

    /// The newest delete at or before `snapshot` that covers `row`.
    pub fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        self.txns_over(row).find(|&txn| txn <= snapshot)
    }

    /// Every delete that covers `row`, newest first.
    pub fn txns_over(&self, row: &[u8]) -> impl Iterator<Item = Txn> {
        let at = self.list.partition_point(|span| span.range.start.as_slice() <= row);
        let span = self.list[..at].last().filter(|span| span.range.contains(row));
        span.into_iter().flat_map(|span| span.txns.iter().copied())
    }

    /// Keeps only the txns that `keep` accepts; drops spans left without any.
    pub fn retain(&mut self, mut keep: impl FnMut(&RowRange, &[Txn]) -> Vec<Txn>) {
        self.list.retain_mut(|span| {
            span.txns = keep(&span.range, &span.txns);
            !span.txns.is_empty()
        });
    }

    /// The part of the list inside `range`.
    pub fn clipped(&self, range: &RowRange) -> Spans {
        let list = self
            .list
            .iter()
            .filter(|span| span.range.overlaps(range))
            .map(|span| Span { range: span.range.intersection(range), txns: span.txns.clone() })
            .collect();
        Spans { list }
    }

    /// Rows touched by the list: the start of the first span to the end of the last.
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

    fn with_range(&self, start: Vec<u8>, end: Option<Vec<u8>>) -> Span {
        Span { range: RowRange { start, end }, txns: self.txns.clone() }
    }

    fn add(&mut self, txn: Txn) {
        let at = self.txns.partition_point(|&newer| newer > txn);
        if self.txns.get(at) != Some(&txn) {
            self.txns.insert(at, txn);
        }
    }
}

/// Lays `range` at `txn` over one existing span. `at` is how far `range` has
/// been laid already; `None` once its end is reached.
fn cut_one(
    span: Span,
    range: &RowRange,
    txn: Txn,
    at: &mut Option<Vec<u8>>,
    pieces: &mut Vec<Span>,
) {
    let Some(start) = at.take() else {
        pieces.push(span);
        return;
    };
    if span.range.start < start {
        pieces.push(span.with_range(span.range.start.clone(), Some(start.clone())));
    } else if start < span.range.start {
        let gap = RowRange { start: start.clone(), end: Some(span.range.start.clone()) };
        pieces.push(Span { range: gap, txns: vec![txn] });
    }
    let shared_start = start.max(span.range.start.clone());
    let shared = RowRange { start: shared_start, end: None }
        .intersection(&RowRange { start: Vec::new(), end: range.end.clone() });
    let shared = shared.intersection(&span.range);
    let mut both = span.with_range(shared.start, shared.end.clone());
    both.add(txn);
    pieces.push(both);
    if shared.end != span.range.end {
        let tail = shared.end.expect("a shared part that ends early has an end");
        pieces.push(span.with_range(tail, span.range.end.clone()));
    } else if shared.end != range.end {
        *at = shared.end;
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
            for row in 0..16u8 {
                for snapshot in 0..21 {
                    let expected = deletes
                        .iter()
                        .filter(|d| range(d.0, d.1).contains(&[row]) && d.2 <= snapshot)
                        .map(|d| txn(d.2))
                        .max();
                    prop_assert_eq!(spans.covering(&[row], txn(snapshot)), expected);
                }
            }
        }
    }
}
