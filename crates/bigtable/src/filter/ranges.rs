//! Sets of row keys or qualifiers, as sorted, disjoint and non-adjacent ranges.

use stele_engine::RowRange;

/// More ranges than this cost more than they save: they are replaced by their
/// hull.
const RANGES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    list: Vec<RowRange>,
}

impl Ranges {
    pub fn all() -> Ranges {
        Ranges { list: vec![RowRange::all()] }
    }

    pub fn none() -> Ranges {
        Ranges { list: Vec::new() }
    }

    /// Returns the union of ranges in any order.
    pub fn from_unsorted(mut ranges: Vec<RowRange>) -> Ranges {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let mut list: Vec<RowRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match list.last_mut() {
                Some(last) if last.end.as_ref().is_none_or(|end| *end >= range.start) => {
                    if let Some(end) = &last.end
                        && range.end.as_ref().is_none_or(|other| other > end)
                    {
                        last.end = range.end;
                    }
                }
                _ => list.push(range),
            }
        }
        Ranges { list }
    }

    /// Returns a set of single keys.
    pub fn points(points: &[Vec<u8>]) -> Ranges {
        Ranges::from_unsorted(points.iter().map(|point| RowRange::row(point)).collect())
    }

    /// Returns whether the set has a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        let after = self.list.partition_point(|range| &range.start[..] <= key);
        after > 0 && self.list[after - 1].contains(key)
    }

    pub fn list(&self) -> &[RowRange] {
        &self.list
    }

    pub fn into_list(self) -> Vec<RowRange> {
        self.list
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn is_all(&self) -> bool {
        matches!(&self.list[..], [range] if range.start.is_empty() && range.end.is_none())
    }

    /// Returns a set that contains both, and little more.
    pub fn union(self, other: Ranges) -> Ranges {
        let mut list = self.list;
        list.extend(other.list);
        let mut union = Ranges::from_unsorted(list);
        if union.list.len() > RANGES_MAX {
            let last = union.list.pop();
            union.list = RowRange::hull(union.list.into_iter().next(), last).into_iter().collect();
        }
        union
    }

    pub fn intersection(&self, other: &Ranges) -> Ranges {
        let (mut at, mut other_at) = (0, 0);
        let mut list = Vec::new();
        while let (Some(a), Some(b)) = (self.list.get(at), other.list.get(other_at)) {
            let both = a.intersection(b);
            if !both.is_empty() {
                list.push(both);
            }
            // The range that ends first cannot intersect anything else.
            let a_first = match (&a.end, &b.end) {
                (Some(a), Some(b)) => a <= b,
                (end, _) => end.is_some(),
            };
            if a_first { at += 1 } else { other_at += 1 }
        }
        Ranges { list }
    }

    /// Returns whether `other` is a subset of this set.
    pub fn covers(&self, other: &Ranges) -> bool {
        self.is_all() || self.intersection(other) == *other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_ranges() -> impl Strategy<Value = Ranges> {
        let range = (0u8..12, prop::option::of(0u8..12)).prop_map(|(start, end)| RowRange {
            start: if start == 0 { vec![] } else { vec![start] },
            end: end.map(|end| vec![end]),
        });
        prop::collection::vec(range, 0..5).prop_map(Ranges::from_unsorted)
    }

    fn contains(ranges: &Ranges, key: &[u8]) -> bool {
        let found = ranges.list.iter().any(|range| range.contains(key));
        assert_eq!(ranges.contains(key), found);
        found
    }

    proptest! {
        #[test]
        fn sets_hold_what_set_theory_says(a in some_ranges(), b in some_ranges()) {
            let (union, both) = (a.clone().union(b.clone()), a.intersection(&b));
            let mut a_covers_b = true;
            for key in (0u8..13).flat_map(|key| [vec![key], vec![key, 0]]).chain([vec![]]) {
                let (in_a, in_b) = (contains(&a, &key), contains(&b, &key));
                prop_assert_eq!(contains(&union, &key), in_a || in_b);
                prop_assert_eq!(contains(&both, &key), in_a && in_b);
                a_covers_b &= in_a || !in_b;
            }
            prop_assert_eq!(a.covers(&b), a_covers_b);
            for pair in union.list.windows(2) {
                prop_assert!(pair[0].end.as_ref().unwrap() < &pair[1].start);
            }
        }
    }

    #[test]
    fn a_union_of_very_many_ranges_becomes_one() {
        let points = |from: u16, to: u16| {
            Ranges::points(&(from..to).map(|at| at.to_be_bytes().to_vec()).collect::<Vec<_>>())
        };
        let union = points(0, 4000).union(points(5000, 9000));
        assert_eq!(union.list.len(), 1);
        assert!(contains(&union, &8999u16.to_be_bytes()) && contains(&union, &[0, 0]));
        assert!(!contains(&union, &9000u16.to_be_bytes()));
    }
}
