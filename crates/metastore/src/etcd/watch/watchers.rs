//! The watchers of a stream, with totals that are known without visiting each.

use std::collections::BTreeMap;

use super::watcher::Watcher;

#[derive(Default)]
pub struct Watchers {
    by_id: BTreeMap<i64, Watcher>,
    /// The number that want progress notifications, and the number that lag.
    progress_wanted: usize,
    lagging: usize,
}

impl Watchers {
    pub fn insert(&mut self, id: i64, watcher: Watcher) {
        self.progress_wanted += usize::from(watcher.progress_notify);
        self.lagging += usize::from(watcher.lagging);
        let before = self.by_id.insert(id, watcher);
        assert!(before.is_none(), "an id is given once");
    }

    pub fn remove(&mut self, id: i64) -> Option<Watcher> {
        let watcher = self.by_id.remove(&id)?;
        self.progress_wanted -= usize::from(watcher.progress_notify);
        self.lagging -= usize::from(watcher.lagging);
        Some(watcher)
    }

    /// Records that a watcher has caught up with the others.
    pub fn caught_up(&mut self, id: i64) {
        if let Some(watcher) = self.by_id.get_mut(&id) {
            self.lagging -= usize::from(std::mem::take(&mut watcher.lagging));
        }
    }

    pub fn get_mut(&mut self, id: i64) -> Option<&mut Watcher> {
        visited();
        self.by_id.get_mut(&id)
    }

    pub fn contains(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn wants_progress(&self) -> bool {
        self.progress_wanted > 0
    }

    pub fn lagging(&self) -> usize {
        self.lagging
    }

    /// Iterates over all watchers, so it must not run for every event.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Watcher)> {
        self.by_id.iter().map(|(id, watcher)| {
            visited();
            (*id, watcher)
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (i64, &mut Watcher)> {
        self.by_id.iter_mut().map(|(id, watcher)| {
            visited();
            (*id, watcher)
        })
    }
}

/// Counts visited watchers, in tests.
#[cfg(not(test))]
fn visited() {}

#[cfg(test)]
thread_local! {
    /// The number of watchers that this thread has visited.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn visited() {
    VISITED.with(|visited| visited.set(visited.get() + 1));
}
