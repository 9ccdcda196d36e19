//! Unions of ranges of keys, and whether they cover a request.

use crate::key::{KeyRange, RangeEnd};

/// Sorted, disjoint intervals of keys, which do not touch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<Interval>);

/// Keys from `start` up to `end`; an end of `None` is unbounded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Interval {
    fn of(range: &KeyRange) -> Interval {
        let end = match &range.end {
            RangeEnd::Single => Some([&range.start[..], &[0]].concat()),
            RangeEnd::Before(end) => Some(end.to_vec()),
            RangeEnd::Unbounded => None,
        };
        Interval { start: range.start.to_vec(), end }
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| &end[..] < key)
    }
}

impl Intervals {
    pub fn union<'r>(ranges: impl Iterator<Item = &'r KeyRange>) -> Intervals {
        let ranges = ranges.filter(|range| !range.is_empty());
        let mut sorted: Vec<Interval> = ranges.map(Interval::of).collect();
        sorted.sort_unstable();
        let mut union: Vec<Interval> = Vec::with_capacity(sorted.len());
        for interval in sorted {
            match union.last_mut() {
                Some(last) if !last.ends_before(&interval.start) => {
                    last.end = match (last.end.take(), interval.end) {
                        (Some(a), Some(b)) => Some(a.max(b)),
                        _ => None,
                    };
                }
                _ => union.push(interval),
            }
        }
        Intervals(union)
    }

    /// Returns whether all keys of a range are covered. A range without keys
    /// needs its start.
    pub fn cover(&self, range: &KeyRange) -> bool {
        let start = &range.start[..];
        let after = self.0.partition_point(|interval| &interval.start[..] <= start);
        let Some(interval) = after.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return false;
        };
        let Some(covered) = &interval.end else { return true };
        let covered = &covered[..];
        start < covered
            && match &range.end {
                RangeEnd::Single => true,
                RangeEnd::Before(end) => &end[..] <= covered,
                RangeEnd::Unbounded => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange::from_wire(start.to_owned().into(), end.to_owned().into())
    }

    fn covered(granted: &[(&str, &str)], start: &str, end: &str) -> bool {
        let granted: Vec<KeyRange> = granted.iter().map(|(start, end)| range(start, end)).collect();
        Intervals::union(granted.iter()).cover(&range(start, end))
    }

    #[test]
    fn a_request_must_lie_within_the_union() {
        assert!(covered(&[("a", "c"), ("c", "f")], "b", "e"), "adjacent ranges");
        assert!(covered(&[("a", "d"), ("b", "c")], "a", "d"), "one within another");
        assert!(covered(&[("b", ""), ("a", "")], "a", "") && covered(&[("a", "")], "a", "a\0"));
        assert!(!covered(&[("a", "")], "a", "b") && !covered(&[("a", "")], "aa", ""));
        assert!(!covered(&[("a", "c"), ("d", "f")], "b", "e"), "a gap");
        assert!(!covered(&[("a", "c")], "c", "") && !covered(&[], "a", ""));
    }

    #[test]
    fn an_open_end_is_covered_only_by_an_open_end() {
        assert!(covered(&[("a", "\0")], "b", "\0") && covered(&[("a", "\0")], "b", "z"));
        assert!(!covered(&[("a", "zzzz")], "b", "\0"));
        assert!(!covered(&[("b", "\0")], "a", "\0"));
        assert!(covered(&[("b", "\0"), ("a", "c")], "a", "\0"));
    }

    #[test]
    fn a_range_without_keys_needs_its_start() {
        assert!(covered(&[("a", "c")], "b", "a") && !covered(&[("a", "c")], "x", "b"));
    }
}
