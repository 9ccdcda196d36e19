//! An interval tree: finds the ranges that contain a key without examining the
//! others.
//!
//! The ranges are kept in an array sorted by start, as a balanced tree in which
//! every node has the maximum end of its subtree. Ranges that were added since
//! the array was built are few, and are searched linearly.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::command::{KeyRange, RangeEnd};

/// The array is rebuilt when more than this many ranges have been added, and
/// more than one in `RECENT_PART` of all ranges.
const RECENT_MIN: usize = 32;
const RECENT_PART: usize = 8;

#[derive(Default)]
pub struct Ranges {
    /// All ranges, by the ids of their watchers.
    ranges: BTreeMap<i64, KeyRange>,
    /// Sorted by start; still contains ranges that have been removed since.
    sorted: Vec<Node>,
    /// Added since `sorted` was built.
    recent: Vec<i64>,
}

struct Node {
    start: Bytes,
    id: i64,
    /// The maximum end in the subtree of this node; `None` if one of them is
    /// unbounded.
    end_max: Option<Bytes>,
}

impl Ranges {
    pub fn add(&mut self, id: i64, range: &KeyRange) {
        self.ranges.insert(id, range.clone());
        self.recent.push(id);
        if self.recent.len() > RECENT_MIN.max(self.ranges.len() / RECENT_PART) {
            self.build();
        }
    }

    pub fn remove(&mut self, id: i64) {
        self.ranges.remove(&id);
        if self.sorted.len() + self.recent.len() > 2 * (self.ranges.len() + RECENT_MIN) {
            self.build();
        }
    }

    /// Passes the ids of all ranges that contain a key to `found`, some of them
    /// twice, until it returns false. Returns the number of nodes examined.
    pub fn containing(&self, key: &[u8], found: &mut dyn FnMut(i64) -> bool) -> usize {
        let mut steps = self.recent.len();
        for id in &self.recent {
            if self.contains(*id, key) && !found(*id) {
                return steps;
            }
        }
        self.search(&self.sorted, key, &mut steps, found);
        steps
    }

    fn contains(&self, id: i64, key: &[u8]) -> bool {
        self.ranges.get(&id).is_some_and(|range| range.contains(key))
    }

    /// Searches a part of the array, whose root is its middle.
    fn search(
        &self,
        nodes: &[Node],
        key: &[u8],
        steps: &mut usize,
        found: &mut dyn FnMut(i64) -> bool,
    ) -> bool {
        let Some((before, node, after)) = split(nodes) else { return true };
        *steps += 1;
        if node.end_max.as_ref().is_some_and(|end| key >= &end[..]) {
            return true;
        }
        if !self.search(before, key, steps, found) {
            return false;
        }
        if key < &node.start[..] {
            return true;
        }
        if self.contains(node.id, key) && !found(node.id) {
            return false;
        }
        self.search(after, key, steps, found)
    }

    fn build(&mut self) {
        self.recent.clear();
        let nodes = self.ranges.iter().map(|(id, range)| Node {
            start: range.start.clone(),
            id: *id,
            end_max: end_of(range),
        });
        self.sorted = nodes.collect();
        self.sorted.sort_by(|a, b| a.start.cmp(&b.start));
        raise_ends(&mut self.sorted);
    }
}

fn split(nodes: &[Node]) -> Option<(&[Node], &Node, &[Node])> {
    let middle = nodes.len() / 2;
    let (before, rest) = nodes.split_at(middle);
    let (node, after) = rest.split_first()?;
    Some((before, node, after))
}

/// Sets the maximum end of every node. Returns that of the root.
fn raise_ends(nodes: &mut [Node]) -> Option<Option<Bytes>> {
    let middle = nodes.len() / 2;
    let (before, rest) = nodes.split_at_mut(middle);
    let (node, after) = rest.split_first_mut()?;
    for end in [raise_ends(before), raise_ends(after)].into_iter().flatten() {
        node.end_max = match (node.end_max.take(), end) {
            (Some(mine), Some(other)) => Some(mine.max(other)),
            _ => None,
        };
    }
    Some(node.end_max.clone())
}

fn end_of(range: &KeyRange) -> Option<Bytes> {
    match &range.end {
        RangeEnd::Before(end) => Some(end.clone()),
        RangeEnd::Single => Some([&range.start[..], &[0]].concat().into()),
        RangeEnd::Unbounded => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn containing(ranges: &Ranges, key: &[u8]) -> (Vec<i64>, usize) {
        let mut ids = Vec::new();
        let steps = ranges.containing(key, &mut |id| {
            ids.push(id);
            true
        });
        ids.sort_unstable();
        ids.dedup();
        (ids, steps)
    }

    proptest! {
        #[test]
        fn the_ranges_of_a_key_are_those_that_contain_it(
            drawn in prop::collection::vec((0u8..40, 0u8..40, any::<bool>()), 0..120),
            removed in prop::collection::vec(0usize..120, 0..60),
        ) {
            let mut ranges = Ranges::default();
            let mut model = BTreeMap::new();
            for (id, (a, b, unbounded)) in drawn.into_iter().enumerate() {
                let end = if unbounded { vec![0] } else { vec![a.max(b) + 1] };
                let range = KeyRange::from_wire(vec![a.min(b)].into(), end.into());
                ranges.add(id as i64, &range);
                model.insert(id as i64, range);
            }
            for id in removed {
                ranges.remove(id as i64);
                model.remove(&(id as i64));
            }
            for key in 0u8..42 {
                let of_model = model.iter().filter(|(_, range)| range.contains(&[key]));
                let expected: Vec<i64> = of_model.map(|(id, _)| *id).collect();
                prop_assert_eq!(containing(&ranges, &[key]).0, expected);
            }
        }
    }

    #[test]
    fn the_work_for_an_event_does_not_grow_with_the_ranges_of_other_keys() {
        let steps = |count: usize| {
            let mut ranges = Ranges::default();
            for id in 0..count {
                ranges.add(id as i64, &KeyRange::prefix(format!("{id:08}/")));
            }
            ranges.build();
            let (found, steps) = containing(&ranges, format!("{:08}/x", count / 3).as_bytes());
            assert_eq!(found, [count as i64 / 3]);
            steps
        };
        let (few, many) = (steps(1_000), steps(30_000));
        assert!(many <= 2 * few, "{few} {many}");
    }
}
