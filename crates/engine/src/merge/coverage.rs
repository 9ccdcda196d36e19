//! The tombstones that cover the current position of a merge.
//!
//! Among tombstones that no snapshot distinguishes (a stripe), only the newest at each
//! position matters, so a lookup is logarithmic in the number of covered ranges,
//! however many deletes a row or column has had.

use std::collections::BTreeMap;

use super::steps::{StepOf, count_step};
use crate::cell::commit::TimeRange;
use crate::cell::key::Level;
use crate::cell::normal::decode_times;
use crate::txn::Txn;

/// The set of snapshots that see a txn: two txns are in one stripe if every live
/// snapshot sees both or neither. A reader has one snapshot and one stripe.
pub type Stripe = usize;

/// The stripe of everything that a reader sees.
pub const SEEN: Stripe = 0;

/// The tombstones that cover the current column, by level; those of one level are added
/// newest first. A tombstone covers everything under it with a smaller txn.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Covering the row: range tombstones and row tombstones.
    row: Newest,
    family: Newest,
    /// Covering all timestamps of the column.
    column: Newest,
    /// Covering some timestamps of the column.
    times: Times,
    /// The maximum of `row`, `family` and the txn at which the family was created.
    family_floor: Txn,
    /// The maximum of `family_floor` and `column`.
    floor: Txn,
}

impl Coverage {
    /// Starts a new row that these range tombstones cover.
    pub fn enter_row(&mut self, range_tombstones: impl Iterator<Item = (Stripe, Txn)>) {
        self.row.clear();
        for (stripe, txn) in range_tombstones {
            self.row.add(stripe, txn);
        }
        self.enter_family();
    }

    pub fn enter_family(&mut self) {
        self.family.clear();
        self.family_floor = self.row.newest();
        self.enter_column();
    }

    pub fn enter_column(&mut self) {
        self.column.clear();
        self.times.clear();
        self.floor = self.family_floor;
    }

    /// Hides cells of the current family up to `txn`: they belong to a dropped family
    /// of the same name.
    pub fn begin_family_after(&mut self, txn: Txn) {
        if txn > Txn::ZERO {
            self.family_floor = self.family_floor.max(txn.next());
            self.floor = self.floor.max(self.family_floor);
        }
    }

    /// Adds a tombstone of the current row, family or column.
    pub fn add(&mut self, level: Level, stripe: Stripe, txn: Txn, value: &[u8]) -> Added {
        if self.covers_tombstone(level, stripe, txn) {
            return Added { any: false, rest_needless: true };
        }
        match level {
            Level::RowTombstone => self.row.add(stripe, txn),
            Level::FamilyTombstone => self.family.add(stripe, txn),
            Level::ColumnTombstone => return self.add_times(stripe, txn, value),
            Level::Cell => unreachable!("a cell is not a tombstone"),
        }
        self.family_floor = self.family_floor.max(txn);
        self.floor = self.floor.max(txn);
        Added { any: true, rest_needless: true }
    }

    fn add_times(&mut self, stripe: Stripe, txn: Txn, value: &[u8]) -> Added {
        let mut any = false;
        for times in decode_times(value) {
            if times == TimeRange::ALL {
                let any = !self.times.cover_all(stripe);
                self.column.add(stripe, txn);
                self.floor = self.floor.max(txn);
                return Added { any, rest_needless: true };
            }
            any |= self.times.add(stripe, times, txn);
        }
        Added { any, rest_needless: false }
    }

    /// Returns whether a newer tombstone of the stripe covers everything that a
    /// tombstone of that level covers. Ignores time ranges of the column.
    fn covers_tombstone(&self, level: Level, stripe: Stripe, txn: Txn) -> bool {
        self.row.covers(stripe, txn)
            || level > Level::RowTombstone && self.family.covers(stripe, txn)
            || level > Level::FamilyTombstone && self.column.covers(stripe, txn)
    }

    /// Returns whether a cell of the current column is deleted for a reader.
    #[inline]
    pub fn covers(&self, timestamp: i64, txn: Txn) -> bool {
        txn < self.floor || self.times.covers(SEEN, timestamp, txn)
    }

    /// Returns whether a tombstone of the cell's own stripe deletes a cell of the
    /// current column.
    pub fn covers_in_stripe(&self, stripe: Stripe, timestamp: i64, txn: Txn) -> bool {
        self.covers_tombstone(Level::Cell, stripe, txn) || self.times.covers(stripe, timestamp, txn)
    }
}

/// What a tombstone covers in addition to the newer ones of its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    pub any: bool,
    /// Older tombstones of its level and stripe cover nothing further.
    pub rest_needless: bool,
}

/// The newest tombstone of each stripe, newest stripe first.
#[derive(Clone, Debug, Default)]
struct Newest {
    list: Vec<(Stripe, Txn)>,
}

impl Newest {
    fn clear(&mut self) {
        self.list.clear();
    }

    fn newest(&self) -> Txn {
        self.list.first().map_or(Txn::ZERO, |&(_, txn)| txn)
    }

    fn add(&mut self, stripe: Stripe, txn: Txn) {
        let at = self.position(stripe);
        match self.list.get_mut(at) {
            Some((same, newest)) if *same == stripe => *newest = txn.max(*newest),
            _ => self.list.insert(at, (stripe, txn)),
        }
    }

    fn covers(&self, stripe: Stripe, txn: Txn) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let found = self.list.get(self.position(stripe));
        found.is_some_and(|&(same, newest)| same == stripe && txn < newest)
    }

    fn position(&self, stripe: Stripe) -> usize {
        count_step(StepOf::Coverage);
        self.list.partition_point(|&(newer, _)| newer > stripe)
    }
}

/// Deletes of time ranges in one column: per stripe, the newest delete of each
/// timestamp.
#[derive(Clone, Debug, Default)]
struct Times {
    /// Disjoint ranges keyed by their minimum timestamp: the maximum timestamp and the
    /// newest delete.
    newest: BTreeMap<(Stripe, i64), (i64, Txn)>,
    /// The same ranges, coalesced where they touch.
    joined: BTreeMap<(Stripe, i64), i64>,
}

impl Times {
    fn clear(&mut self) {
        if !self.newest.is_empty() {
            self.newest.clear();
            self.joined.clear();
        }
    }

    /// Adds a delete that is older than all previous ones, wherever those leave gaps.
    /// Returns whether there was a gap. Filling a gap joins its neighbours, so n
    /// deletes find at most 2n gaps.
    fn add(&mut self, stripe: Stripe, times: TimeRange, txn: Txn) -> bool {
        let before = self.joined.range(..=(stripe, times.min)).next_back();
        let before = before
            .filter(|&(&(same, _), &max)| same == stripe && max.saturating_add(1) >= times.min);
        let (mut min, mut at) = (times.min, Some(times.min));
        if let Some((&(_, start), &max)) = before {
            if max >= times.max {
                return false;
            }
            (min, at) = (start, max.checked_add(1));
        }
        let mut end = times.max;
        loop {
            count_step(StepOf::Coverage);
            let Some(from) = at.filter(|&from| from <= times.max) else { break };
            let next = self.joined.range((stripe, from)..).next();
            let next = next.map(|(&(same, start), &max)| (same, start, max));
            let next = next
                .filter(|&(same, start, _)| same == stripe && start <= times.max.saturating_add(1));
            let Some((_, start, max)) = next else {
                self.newest.insert((stripe, from), (times.max, txn));
                break;
            };
            if from < start {
                self.newest.insert((stripe, from), (start - 1, txn));
            }
            self.joined.remove(&(stripe, start));
            end = end.max(max);
            at = max.checked_add(1);
        }
        self.joined.insert((stripe, min), end);
        true
    }

    fn cover_all(&self, stripe: Stripe) -> bool {
        self.joined.get(&(stripe, i64::MIN)) == Some(&i64::MAX)
    }

    fn covers(&self, stripe: Stripe, timestamp: i64, txn: Txn) -> bool {
        if self.newest.is_empty() {
            return false;
        }
        count_step(StepOf::Coverage);
        let found = self.newest.range(..=(stripe, timestamp)).next_back();
        found.is_some_and(|(&(same, _), &(max, newest))| {
            same == stripe && timestamp <= max && txn < newest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::normal::encode_times;
    use crate::merge::steps;
    use proptest::prelude::*;

    fn txn(number: u64) -> Txn {
        Txn::from_raw(number).unwrap()
    }

    fn value(times: &[TimeRange]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_times(times, &mut out);
        out
    }

    fn steps_of(work: impl FnOnce()) -> usize {
        let before = steps(StepOf::Coverage);
        work();
        steps(StepOf::Coverage) - before
    }

    #[derive(Clone, Debug)]
    struct Delete {
        level: Level,
        times: TimeRange,
        txn: u64,
    }

    fn delete() -> impl Strategy<Value = Delete> {
        let level = prop::sample::select(vec![
            Level::RowTombstone,
            Level::FamilyTombstone,
            Level::ColumnTombstone,
            Level::ColumnTombstone,
        ]);
        let bound = prop::sample::select(vec![i64::MIN, 0, 1, 2, 3, 5, 8, i64::MAX]);
        (level, bound.clone(), bound, 1u64..30).prop_map(|(level, a, b, txn)| Delete {
            level,
            times: TimeRange { min: a.min(b), max: a.max(b) },
            txn,
        })
    }

    proptest! {
        #[test]
        fn what_is_covered_is_what_any_tombstone_of_the_stripe_covers(
            mut deletes in prop::collection::vec(delete(), 0..14),
            snapshots in prop::collection::btree_set(1u64..30, 0..4),
        ) {
            let stripe = |number: u64| snapshots.iter().filter(|&&at| at < number).count();
            deletes.sort_by_key(|delete| (delete.level, std::cmp::Reverse(delete.txn)));
            deletes.dedup_by_key(|delete| (delete.level, delete.txn));
            let mut coverage = Coverage::default();
            coverage.enter_row(std::iter::empty());
            let covers = |delete: &Delete, at: i64| {
                delete.level != Level::ColumnTombstone || delete.times.contains(at)
            };
            const MOMENTS: [i64; 13] =
                [i64::MIN, -1, 0, 1, 2, 3, 4, 5, 6, 8, 9, i64::MAX - 1, i64::MAX];
            let mut before: Vec<Delete> = Vec::new();
            for delete in &deletes {
                let (level, number) = (delete.level, delete.txn);
                let times = value(&[delete.times]);
                let added = coverage.add(level, stripe(number), txn(number), &times);
                let adds = MOMENTS.iter().any(|&at| {
                    covers(delete, at)
                        && !before.iter().any(|newer| {
                        covers(newer, at)
                            && newer.txn > number
                            && stripe(newer.txn) == stripe(number)
                            && newer.level <= level
                    })
                });
                prop_assert_eq!(added.any, adds, "{:?}", delete);
                before.push(delete.clone());
            }
            for at in MOMENTS {
                for number in 0..31 {
                    let over = deletes.iter().filter(|d| covers(d, at) && d.txn > number);
                    let expected = over.clone().any(|d| stripe(d.txn) == stripe(number));
                    let found = coverage.covers_in_stripe(stripe(number), at, txn(number));
                    prop_assert_eq!(found, expected, "cell at {} of txn {}", at, number);
                    if snapshots.is_empty() {
                        prop_assert_eq!(coverage.covers(at, txn(number)), over.count() > 0);
                    }
                }
            }
        }
    }

    type Kind = (Level, fn(i64) -> TimeRange);

    #[test]
    fn deletes_of_one_row_or_column_cost_n_log_n() {
        let kinds: [Kind; 5] = [
            (Level::RowTombstone, |_| TimeRange::ALL),
            (Level::ColumnTombstone, |_| TimeRange::ALL),
            // The same range repeatedly, increasingly wide ranges, and points
            // alternating with increasingly wide ranges.
            (Level::ColumnTombstone, |_| TimeRange { min: 0, max: 1 << 40 }),
            (Level::ColumnTombstone, |at| TimeRange { min: -at, max: at }),
            (Level::ColumnTombstone, |at| match at % 2 {
                0 => TimeRange { min: at * 10, max: at * 10 },
                _ => TimeRange { min: 5, max: at * 10 },
            }),
        ];
        for (level, times) in kinds {
            let cost = |count: i64| {
                steps_of(|| {
                    let mut coverage = Coverage::default();
                    for at in 0..count {
                        let number = txn((count - at) as u64 * 2);
                        coverage.add(level, 0, number, &value(&[times(at)]));
                    }
                    for at in 0..count {
                        coverage.covers_in_stripe(0, at, txn(at as u64));
                    }
                })
            };
            let (few, many) = (cost(2000), cost(4000));
            assert!(many <= 2 * few + 16 && few <= 2000 * 12, "{level:?}: {few}, then {many}");
        }
    }
}
