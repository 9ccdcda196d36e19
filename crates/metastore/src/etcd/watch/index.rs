//! An index of watchers by key.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::ranges::Ranges;
use crate::command::KeyRange;
use crate::watch::Event;

/// Watchers by what they watch.
#[derive(Default)]
pub struct Index {
    keys: HashMap<Bytes, Vec<i64>>,
    ranges: Ranges,
}

impl Index {
    pub fn add(&mut self, id: i64, range: &KeyRange) {
        match range.single_key() {
            Some(key) => self.keys.entry(key.clone()).or_default().push(id),
            None => self.ranges.add(id, range),
        }
    }

    pub fn remove(&mut self, id: i64, range: &KeyRange) {
        let Some(key) = range.single_key() else {
            self.ranges.remove(id);
            return;
        };
        if let Some(ids) = self.keys.get_mut(key) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    pub fn is_watched(&self, key: &[u8]) -> bool {
        if self.keys.contains_key(key) {
            return true;
        }
        let mut found = false;
        self.ranges.containing(key, &mut |_| {
            found = true;
            false
        });
        found
    }

    /// Returns the events of each watcher, in order.
    pub fn distribute<'a>(&self, events: &'a [Event]) -> BTreeMap<i64, Vec<&'a Event>> {
        let mut shares: BTreeMap<i64, Vec<&Event>> = BTreeMap::new();
        for event in events {
            let key = event.key();
            for id in self.keys.get(key).into_iter().flatten() {
                shares.entry(*id).or_default().push(event);
            }
            self.ranges.containing(key, &mut |id| {
                let share = shares.entry(id).or_default();
                // A range may be found twice.
                if !share.last().is_some_and(|last| std::ptr::eq(*last, event)) {
                    share.push(event);
                }
                true
            });
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::KeyView;
    use crate::watch::EventKind;

    #[test]
    fn events_go_to_those_who_watch_their_key() {
        let mut index = Index::default();
        let single = KeyRange::single("b");
        let range = KeyRange::from_wire("a".into(), "c".into());
        index.add(1, &single);
        index.add(2, &range);
        index.add(3, &single);
        let events: Vec<Event> = ["a", "b", "c"]
            .iter()
            .map(|key| {
                let view = KeyView { key: key.as_bytes(), tail: b"" };
                Event::new(5, EventKind::Put, view, None)
            })
            .collect();
        let keys = |index: &Index| -> Vec<(i64, Vec<u8>)> {
            let shares = index.distribute(&events);
            shares
                .into_iter()
                .map(|(id, events)| {
                    (id, events.iter().flat_map(|event| event.key().to_vec()).collect())
                })
                .collect()
        };
        assert_eq!(keys(&index), [(1, b"b".to_vec()), (2, b"ab".to_vec()), (3, b"b".to_vec())]);
        assert!(index.is_watched(b"a") && !index.is_watched(b"c"));
        index.remove(3, &single);
        index.remove(2, &range);
        assert_eq!(keys(&index), [(1, b"b".to_vec())]);
        assert!(!index.is_watched(b"a"));
    }
}
