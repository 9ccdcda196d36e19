//! Chooses which tablets to split and to join, and where. The functions are pure:
//! `store/bounds.rs` collects what they need and does what they choose.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cell::rows::RowRange;
use crate::options::TabletOptions;
use crate::tablet::LoadInterval;

/// What decides about a tablet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TabletView {
    /// Whether it takes reads and writes.
    pub active: bool,
    /// Approximate size on disk.
    pub bytes: u64,
    /// The size at which no row was found to split it before; 0 if that did not happen.
    pub unsplittable_bytes: u64,
    /// Time since it got its rows.
    pub age: Duration,
    /// Percentage of the store's busy time that it takes, at least, in each interval of
    /// `split_load_time`.
    pub load_percent: u32,
}

/// Why a tablet is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitReason {
    /// It is large.
    Size,
    /// It takes much of the store's busy time.
    Load,
}

/// Returns whether a tablet should be split, and why.
pub fn split_reason(tablet: &TabletView, options: &TabletOptions) -> Option<SplitReason> {
    if !tablet.active || tablet.age < options.change_interval {
        return None;
    }
    let size_max = options.split_bytes.max(tablet.unsplittable_bytes.saturating_mul(2));
    if tablet.bytes > size_max {
        return Some(SplitReason::Size);
    }
    (tablet.load_percent > options.split_load_percent).then_some(SplitReason::Load)
}

/// Returns whether two neighbouring tablets should be joined: small, old, and not busy
/// enough to be split again.
pub fn is_joined(lower: &TabletView, upper: &TabletView, options: &TabletOptions) -> bool {
    let both = [lower, upper];
    let age_min = options.join_age.max(options.change_interval);
    both.iter().all(|tablet| tablet.active && tablet.age >= age_min)
        && lower.bytes.saturating_add(upper.bytes) < options.join_bytes
        && lower.load_percent + upper.load_percent <= options.split_load_percent / 2
}

/// A split leaves at least this percentage on either side.
const SIDE_PERCENT_MIN: u128 = 30;

/// Chooses the row at which a tablet is split into parts that are as equal as possible.
/// `weights` are rows with the weight, in bytes or time, of what is before each of them
/// and after the one before. Returns `None` if no row is between 30 and 70 percent, as in
/// a tablet with one giant row.
pub fn split_row(mut weights: Vec<(Vec<u8>, u64)>, rest: u64, rows: &RowRange) -> Option<Vec<u8>> {
    weights.sort_unstable();
    let total = weights.iter().map(|(_, weight)| u128::from(*weight)).sum::<u128>();
    let total = total + u128::from(rest);
    let (mut before, mut best) = (0, None);
    let mut weights = weights.into_iter().peekable();
    while let Some((row, weight)) = weights.next() {
        before += u128::from(weight);
        // All of a row is on one side.
        let is_last_of_row = weights.peek().is_none_or(|(next, _)| *next != row);
        let inside = row > rows.start && rows.contains(&row);
        let percent = before * 100 / total.max(1);
        let balanced = (SIDE_PERCENT_MIN..=100 - SIDE_PERCENT_MIN).contains(&percent);
        if is_last_of_row && inside && balanced {
            let distance = (2 * before).abs_diff(total);
            if best.as_ref().is_none_or(|(least, _)| distance < *least) {
                best = Some((distance, row));
            }
        }
    }
    best.map(|(_, row)| row)
}

/// Returns the lowest percentage of the busy time of all intervals that a tablet takes,
/// from the samples of its table. `total` is the busy time of all tables, for each
/// interval.
pub fn load_percent(rows: &RowRange, of_table: &[LoadInterval], total: &[Duration]) -> u32 {
    let percents = of_table.iter().zip(total).map(|(interval, total)| {
        let sampled: Duration = interval.rows.iter().map(|(_, took)| *took).sum();
        let own = interval.rows.iter().filter(|(row, _)| rows.contains(row));
        let own: Duration = own.map(|(_, took)| *took).sum();
        let share = own.as_secs_f64() / sampled.as_secs_f64().max(f64::MIN_POSITIVE);
        let of_all = interval.busy.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        (share * of_all * 100.0) as u32
    });
    percents.min().unwrap_or(0)
}

/// Returns the sampled rows of a tablet as weights for `split_row`, and the weight of the
/// last one, which is after every row that can be chosen.
pub fn sampled_weights(rows: &RowRange, of_table: &[LoadInterval]) -> (Vec<(Vec<u8>, u64)>, u64) {
    let samples = of_table.iter().flat_map(|interval| &interval.rows);
    let own = samples.filter(|(row, _)| rows.contains(row));
    let mut by_row: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (row, took) in own {
        let weight = by_row.entry(row).or_default();
        *weight = weight.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    // What a row takes is after the boundary before that row.
    let mut before = 0;
    let weights = by_row
        .into_iter()
        .map(|(row, weight)| (row.to_vec(), std::mem::replace(&mut before, weight)));
    (weights.collect(), before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MINUTE: Duration = Duration::from_secs(60);

    fn options() -> TabletOptions {
        TabletOptions::default()
    }

    fn tablet(bytes: u64, age: Duration) -> TabletView {
        TabletView { active: true, bytes, age, ..TabletView::default() }
    }

    #[test]
    fn scale_6_1_a_tablet_over_a_gibibyte_is_split_once_a_minute_and_after_doubling() {
        let reason = |tablet: TabletView| split_reason(&tablet, &options());
        assert_eq!(reason(tablet(1024 * MIB, MINUTE)), None);
        let large = tablet(1025 * MIB, MINUTE);
        assert_eq!(reason(large), Some(SplitReason::Size));
        assert_eq!(reason(tablet(5000 * MIB, MINUTE - Duration::from_secs(1))), None);
        assert_eq!(reason(TabletView { active: false, ..large }), None);
        // One giant row could not be split.
        let giant = TabletView { unsplittable_bytes: 1500 * MIB, ..tablet(3000 * MIB, MINUTE) };
        assert_eq!(reason(giant), None);
        let grown = TabletView { bytes: 3001 * MIB, ..giant };
        assert_eq!(reason(grown), Some(SplitReason::Size));
    }

    #[test]
    fn scale_6_1_a_tablet_with_a_quarter_of_the_busy_time_is_split() {
        let busy = |load_percent| TabletView { load_percent, ..tablet(MIB, MINUTE) };
        assert_eq!(split_reason(&busy(25), &options()), None);
        assert_eq!(split_reason(&busy(26), &options()), Some(SplitReason::Load));
    }

    #[test]
    fn scale_6_1_two_small_old_and_quiet_neighbours_are_joined() {
        let old = 10 * MINUTE;
        let joins = |lower, upper| is_joined(&lower, &upper, &options());
        assert!(joins(tablet(60 * MIB, old), tablet(67 * MIB, old)));
        assert!(!joins(tablet(60 * MIB, old), tablet(68 * MIB, old)));
        assert!(!joins(tablet(0, old), tablet(0, old - MINUTE)));
        assert!(!joins(TabletView { active: false, ..tablet(0, old) }, tablet(0, old)));
        let busy = TabletView { load_percent: 13, ..tablet(0, old) };
        assert!(!joins(busy, tablet(0, old)), "it would soon be split again");
        assert!(joins(TabletView { load_percent: 12, ..busy }, tablet(0, old)));
    }

    fn weights(of: &[(&str, u64)]) -> Vec<(Vec<u8>, u64)> {
        of.iter().map(|(row, weight)| (row.as_bytes().to_vec(), *weight)).collect()
    }

    #[test]
    fn scale_6_1_the_row_of_a_split_leaves_thirty_percent_on_either_side() {
        let row = |of: &[(&str, u64)], rest| split_row(weights(of), rest, &RowRange::all());
        assert_eq!(row(&[("b", 25), ("c", 25), ("d", 25)], 25), Some(b"c".to_vec()));
        // Files overlap: their rows come in any order.
        assert_eq!(row(&[("m", 50), ("c", 10), ("x", 40)], 20), Some(b"m".to_vec()));
        assert_eq!(row(&[("b", 30)], 70), Some(b"b".to_vec()));
        assert_eq!(row(&[("b", 29)], 71), None);
        // A giant row is one weight, with little before and after it.
        assert_eq!(row(&[("giant", 10), ("giant2", 80)], 10), None);
        assert_eq!(row(&[], 100), None);
        assert_eq!(row(&[], 0), None);
        let inner = split_row(weights(&[("c", 40), ("d", 10)]), 50, &RowRange::new("c", "x"));
        assert_eq!(inner, Some(b"d".to_vec()), "a tablet is not split before its first row");
    }

    fn interval(rows: &[(&str, u64)], busy: u64) -> LoadInterval {
        let rows = rows
            .iter()
            .map(|(row, micros)| (row.as_bytes().to_vec(), Duration::from_micros(*micros)));
        let busy = Duration::from_micros(busy);
        LoadInterval { busy, rows: rows.collect(), ..LoadInterval::default() }
    }

    #[test]
    fn scale_6_1_the_load_of_a_tablet_is_its_lowest_share_of_all_intervals() {
        let rows = RowRange::new("b", "d");
        let intervals = [
            interval(&[("a", 10), ("b", 20), ("c", 10)], 400),
            interval(&[("b", 10), ("x", 10)], 100),
        ];
        let total = [400, 200].map(Duration::from_micros);
        assert_eq!(load_percent(&rows, &intervals[..1], &total[..1]), 75);
        assert_eq!(load_percent(&rows, &intervals, &total), 25);
        let quiet = [intervals[0].clone(), LoadInterval::default()];
        assert_eq!(load_percent(&rows, &quiet, &total), 0, "it was idle for a while");
    }

    #[test]
    fn scale_6_1_a_busy_tablet_is_split_where_half_of_the_time_is_spent() {
        let all = RowRange::all();
        let row = |samples: &[(&str, u64)]| {
            let (weights, rest) = sampled_weights(&all, &[interval(samples, 0)]);
            split_row(weights, rest, &all)
        };
        assert_eq!(row(&[("d", 10), ("a", 10), ("c", 10), ("b", 10)]), Some(b"c".to_vec()));
        assert_eq!(row(&[("a", 10), ("a", 10), ("b", 10), ("b", 10)]), Some(b"b".to_vec()));
        assert_eq!(row(&[("a", 1), ("hot", 10), ("hot", 10), ("z", 1)]), None, "one hot row");
        assert_eq!(row(&[]), None);
    }
}
