//! Range tombstones: deletes of whole ranges of rows.
//!
//! They are stored outside the key space, as a sorted list of disjoint ranges. Each range
//! keeps every txn at which it was deleted, so that it can serve any snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::txn::Txn;

/// A range of rows and the txns at which the whole range was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    pub range: RowRange,
    /// Newest first, without duplicates.
    pub txns: Vec<Txn>,
}

/// Sorted, disjoint range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    list: Vec<RangeTombstone>,
}

impl RangeTombstones {
    /// Takes tombstones read from a file; `None` if they are unsorted, overlapping or empty.
    pub fn from_sorted(list: Vec<RangeTombstone>) -> Option<RangeTombstones> {
        let sound = |tombstone: &RangeTombstone| {
            !tombstone.range.is_empty()
                && !tombstone.txns.is_empty()
                && tombstone.txns.windows(2).all(|pair| pair[0] > pair[1])
        };
        let apart = |pair: &[RangeTombstone]| {
            pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.start)
        };
        (list.iter().all(sound) && list.windows(2).all(apart)).then_some(RangeTombstones { list })
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.list.iter()
    }

    /// Returns the size in memory, for accounting.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(RangeTombstone::bytes).sum()
    }

    /// Adds a delete of `range` at `txn`. Copies the list; use a [`RangeTombstoneMap`]
    /// to collect many deletes.
    pub fn insert(&mut self, range: &RowRange, txn: Txn) {
        let mut map = RangeTombstoneMap::from(std::mem::take(self));
        map.insert(range, &[txn]);
        *self = map.to_list();
    }

    /// Adds every tombstone of another list.
    pub fn merge(&mut self, other: &RangeTombstones) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.list.clone_from(&other.list);
            return;
        }
        let mut map = RangeTombstoneMap::from(std::mem::take(self));
        for tombstone in &other.list {
            map.insert(&tombstone.range, &tombstone.txns);
        }
        *self = map.to_list();
    }

    /// Concatenates lists whose ranges ascend and do not overlap.
    pub fn concat(lists: &[Arc<RangeTombstones>]) -> RangeTombstones {
        let list: Vec<RangeTombstone> =
            lists.iter().flat_map(|tombstones| tombstones.iter().cloned()).collect();
        RangeTombstones::from_sorted(list).expect("the lists ascend and do not overlap")
    }

    /// Returns the newest delete at or before `snapshot` that covers `row`.
    pub fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        newest_visible(&self.tombstone_at(row)?.txns, snapshot)
    }

    /// Returns every delete that covers `row`, newest first.
    pub fn txns_over(&self, row: &[u8]) -> impl Iterator<Item = Txn> {
        self.tombstone_at(row).into_iter().flat_map(|tombstone| tombstone.txns.iter().copied())
    }

    fn tombstone_at(&self, row: &[u8]) -> Option<&RangeTombstone> {
        let at = self.list.partition_point(|tombstone| tombstone.range.start.as_slice() <= row);
        self.list[..at].last().filter(|tombstone| tombstone.range.contains(row))
    }

    /// Keeps only the txns that `keep` returns; drops tombstones without any.
    pub fn retain(&mut self, mut keep: impl FnMut(&RowRange, &[Txn]) -> Vec<Txn>) {
        self.list.retain_mut(|tombstone| {
            tombstone.txns = keep(&tombstone.range, &tombstone.txns);
            !tombstone.txns.is_empty()
        });
    }

    /// Returns the part of the list inside `range`.
    pub fn clipped(&self, range: &RowRange) -> RangeTombstones {
        if range.is_empty() {
            return RangeTombstones::default();
        }
        let first = self.list.partition_point(|tombstone| {
            tombstone.range.end.as_ref().is_some_and(|end| *end <= range.start)
        });
        let inside = self.list[first..].partition_point(|tombstone| {
            range.end.as_ref().is_none_or(|end| tombstone.range.start < *end)
        });
        let clip = |tombstone: &RangeTombstone| RangeTombstone {
            range: tombstone.range.intersection(range),
            txns: tombstone.txns.clone(),
        };
        RangeTombstones { list: self.list[first..first + inside].iter().map(clip).collect() }
    }

    /// Returns the first deleted row at or after `start`.
    pub fn first_row_from(&self, start: &[u8]) -> Option<Vec<u8>> {
        let ends_by = |tombstone: &RangeTombstone| {
            tombstone.range.end.as_ref().is_some_and(|end| end.as_slice() <= start)
        };
        let next = self.list.get(self.list.partition_point(ends_by))?;
        Some(next.range.start.clone().max(start.to_vec()))
    }

    /// Returns the hull: from the start of the first tombstone to the end of the last.
    pub fn hull(&self) -> Option<RowRange> {
        let (first, last) = (self.list.first()?, self.list.last()?);
        Some(RowRange { start: first.range.start.clone(), end: last.range.end.clone() })
    }

    pub fn txn_max(&self) -> Option<Txn> {
        self.list.iter().map(|tombstone| tombstone.txns[0]).max()
    }

    pub fn txn_min(&self) -> Option<Txn> {
        self.list.iter().filter_map(|tombstone| tombstone.txns.last().copied()).min()
    }
}

impl RangeTombstone {
    fn bytes(&self) -> usize {
        size_of::<RangeTombstone>()
            + self.range.start.len()
            + self.range.end.as_ref().map_or(0, Vec::len)
            + self.txns.len() * size_of::<Txn>()
    }
}

/// Range tombstones as readers query them.
pub trait RangeTombstoneLookup: Send + Sync {
    /// Returns the newest delete at or before `snapshot` that covers `row`.
    fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn>;

    /// Like `covering`, but also returns a range of rows around `row` that the delete
    /// covers.
    fn covering_range(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)>;
}

impl RangeTombstoneLookup for RangeTombstones {
    fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        RangeTombstones::covering(self, row, snapshot)
    }

    fn covering_range(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)> {
        let tombstone = self.tombstone_at(row)?;
        newest_visible(&tombstone.txns, snapshot).map(|txn| (tombstone.range.clone(), txn))
    }
}

/// Returns the first of descending txns that is at or before `snapshot`.
fn newest_visible(txns: &[Txn], snapshot: Txn) -> Option<Txn> {
    txns.get(txns.partition_point(|&txn| txn > snapshot)).copied()
}

/// A growing set of range tombstones: a delete costs the logarithm of their number, plus one step
/// for each tombstone that it overlaps.
#[derive(Debug, Default)]
pub struct RangeTombstoneMap {
    /// Keyed by the start of the range.
    tombstones: BTreeMap<Vec<u8>, Tail>,
    bytes: usize,
    #[cfg(test)]
    steps: usize,
}

/// A tombstone without its start.
#[derive(Debug)]
struct Tail {
    end: Option<Vec<u8>>,
    txns: Vec<Txn>,
}

impl From<RangeTombstones> for RangeTombstoneMap {
    fn from(tombstones: RangeTombstones) -> RangeTombstoneMap {
        let bytes = tombstones.bytes();
        let entry = |tombstone: RangeTombstone| {
            (tombstone.range.start, Tail { end: tombstone.range.end, txns: tombstone.txns })
        };
        let tombstones = tombstones.list.into_iter().map(entry).collect();
        RangeTombstoneMap {
            tombstones,
            bytes,
            #[cfg(test)]
            steps: 0,
        }
    }
}

impl RangeTombstoneMap {
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    /// Returns the size of the tombstones in memory, for accounting.
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
        let inside = self.tombstones.range_mut::<[u8], _>((Bound::Included(&range.start[..]), end));
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

    /// Splits the tombstone that contains `row`, so that no tombstone crosses its start.
    fn split_at(&mut self, row: &[u8]) {
        let before = (Bound::Unbounded, Bound::Excluded(row));
        let Some((_, tail)) = self.tombstones.range_mut::<[u8], _>(before).next_back() else {
            return;
        };
        if tail.end.as_deref().is_some_and(|end| end <= row) {
            return;
        }
        let end = tail.end.replace(row.to_vec());
        let txns = tail.txns.clone();
        self.bytes = self.bytes + row.len() - end.as_ref().map_or(0, Vec::len);
        self.add(RowRange { start: row.to_vec(), end }, txns);
    }

    /// Adds a tombstone where there is none yet.
    fn add(&mut self, range: RowRange, txns: Vec<Txn>) {
        if range.is_empty() {
            return;
        }
        let tombstone = RangeTombstone { range, txns };
        self.bytes += tombstone.bytes();
        self.tombstones
            .insert(tombstone.range.start, Tail { end: tombstone.range.end, txns: tombstone.txns });
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }

    pub fn to_list(&self) -> RangeTombstones {
        let tombstone = |(start, tail): (&Vec<u8>, &Tail)| RangeTombstone {
            range: RowRange { start: start.clone(), end: tail.end.clone() },
            txns: tail.txns.clone(),
        };
        RangeTombstones { list: self.tombstones.iter().map(tombstone).collect() }
    }

    fn tombstone_at(&self, row: &[u8]) -> Option<(&Vec<u8>, &Tail)> {
        let up_to = (Bound::Unbounded, Bound::Included(row));
        let (start, tail) = self.tombstones.range::<[u8], _>(up_to).next_back()?;
        tail.end.as_deref().is_none_or(|end| row < end).then_some((start, tail))
    }

    pub fn covering(&self, row: &[u8], snapshot: Txn) -> Option<Txn> {
        newest_visible(&self.tombstone_at(row)?.1.txns, snapshot)
    }

    pub fn covering_range(&self, row: &[u8], snapshot: Txn) -> Option<(RowRange, Txn)> {
        let (start, tail) = self.tombstone_at(row)?;
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
            let mut tombstones = RangeTombstones::default();
            let range = |start: u8, end: u8| RowRange {
                start: vec![start],
                end: (end < 13).then(|| vec![end]),
            };
            for &(start, end, number) in &deletes {
                tombstones.insert(&range(start, end), txn(number));
            }
            prop_assert_eq!(RangeTombstones::from_sorted(tombstones.list.clone()), Some(tombstones.clone()));
            let map = RangeTombstoneMap::from(tombstones.clone());
            prop_assert_eq!(map.to_list(), tombstones.clone());
            let mut halves = [RangeTombstones::default(), RangeTombstones::default()];
            for (at, &(start, end, number)) in deletes.iter().enumerate() {
                halves[at % 2].insert(&range(start, end), txn(number));
            }
            let [mut whole, other] = halves;
            whole.merge(&other);
            for row in 0..16u8 {
                prop_assert!(whole.txns_over(&[row]).eq(tombstones.txns_over(&[row])));
            }
            for row in 0..16u8 {
                for snapshot in 0..21 {
                    let expected = deletes
                        .iter()
                        .filter(|d| range(d.0, d.1).contains(&[row]) && d.2 <= snapshot)
                        .map(|d| txn(d.2))
                        .max();
                    prop_assert_eq!(tombstones.covering(&[row], txn(snapshot)), expected);
                    prop_assert_eq!(map.covering(&[row], txn(snapshot)), expected);
                    let over = map.covering_range(&[row], txn(snapshot));
                    prop_assert_eq!(&over, &tombstones.covering_range(&[row], txn(snapshot)));
                    prop_assert!(over.is_none_or(|(rows, _)| rows.contains(&[row])));
                }
            }
        }
    }

    #[test]
    fn the_bytes_of_a_map_are_those_of_its_list() {
        let mut map = RangeTombstoneMap::default();
        for (start, end, number) in
            [(0u8, 9u8, 1u64), (3, 5, 2), (4, 12, 3), (0, 2, 4), (20, 30, 5)]
        {
            map.insert(&RowRange::new([start, 0], [end, 0, 0]), &[txn(number)]);
            map.insert(&RowRange { start: vec![end], end: None }, &[txn(number + 10)]);
            assert_eq!(map.bytes(), map.to_list().bytes());
        }
    }

    #[test]
    fn a_delete_of_a_range_costs_the_same_however_many_there_are() {
        let steps = |count: u32| {
            let mut map = RangeTombstoneMap::default();
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
