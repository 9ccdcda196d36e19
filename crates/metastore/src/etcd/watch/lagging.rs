//! Watchers that lag behind the others of their stream. Those at the same
//! position in the stream of changes form a group, which reads on together. The
//! group that is furthest behind reads until it reaches the next one and joins
//! it. So a range of history is read once, however many watchers of a stream
//! need it.

use std::collections::BTreeMap;

use super::index::Index;
use crate::command::KeyRange;
use crate::watch::{Cursor, Event};

/// All groups, by the position of their cursors.
#[derive(Default)]
pub struct Lagging(BTreeMap<(i64, u32), LaggingGroup>);

/// Watchers at the same position.
pub struct LaggingGroup {
    pub cursor: Cursor,
    index: Index,
    ranges: BTreeMap<i64, KeyRange>,
}

impl Lagging {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watcher that wants events from a revision on.
    pub fn add(&mut self, id: i64, range: &KeyRange, next: i64, cursor: impl FnOnce() -> Cursor) {
        let new =
            || LaggingGroup { cursor: cursor(), index: Index::default(), ranges: BTreeMap::new() };
        self.0.entry((next, 0)).or_insert_with(new).add(id, range.clone());
    }

    pub fn remove(&mut self, id: i64) {
        let found = self.0.iter().find(|(_, group)| group.ranges.contains_key(&id));
        let Some((&position, _)) = found else { return };
        if let Some(group) = self.0.get_mut(&position) {
            if let Some(range) = group.ranges.remove(&id) {
                group.index.remove(id, &range);
            }
            if group.ranges.is_empty() {
                self.0.remove(&position);
            }
        }
    }

    /// Returns whether the group that is furthest behind has to read history.
    pub fn needs_history(&self) -> bool {
        self.0.first_key_value().is_some_and(|(_, group)| group.cursor.needs_history())
    }

    /// Removes the group that is furthest behind. Returns it with the revision
    /// up to which it must read to reach the next one.
    pub fn pop(&mut self) -> Option<(LaggingGroup, i64)> {
        let ((own, _), group) = self.0.pop_first()?;
        let until = self.0.first_key_value().map_or(i64::MAX, |((next, _), _)| own.max(next - 1));
        Some((group, until))
    }

    /// Inserts a group again, and merges it with one at the same position.
    pub fn put_back(&mut self, group: LaggingGroup) {
        let position = group.cursor.position();
        let Some(present) = self.0.get_mut(&position) else {
            self.0.insert(position, group);
            return;
        };
        let mut joining = group;
        if present.ranges.len() < joining.ranges.len() {
            std::mem::swap(present, &mut joining);
        }
        for (id, range) in joining.ranges {
            present.add(id, range);
        }
    }
}

impl LaggingGroup {
    fn add(&mut self, id: i64, range: KeyRange) {
        self.index.add(id, &range);
        self.ranges.insert(id, range);
    }

    pub fn ids(&self) -> impl Iterator<Item = i64> {
        self.ranges.keys().copied()
    }

    /// Returns the watchers with their ranges.
    pub fn into_ranges(self) -> BTreeMap<i64, KeyRange> {
        self.ranges
    }

    /// Takes the next events that any of the watchers wants.
    pub fn take(&mut self, until: i64, events: &mut Vec<Event>) -> crate::Result<()> {
        let index = &self.index;
        self.cursor.take(until, &mut |key| index.is_watched(key), events)
    }

    /// Returns the events of each watcher, in order.
    pub fn distribute<'a>(&self, events: &'a [Event]) -> BTreeMap<i64, Vec<&'a Event>> {
        self.index.distribute(events)
    }
}
