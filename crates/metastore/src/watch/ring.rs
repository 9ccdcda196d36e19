//! The ring of recent changes that all watchers share.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cursor::{TAKE_BYTES, TAKE_EVENTS};
use super::event::Event;

/// The events of the newest log entries.
pub struct Ring {
    entries: VecDeque<Arc<EntryEvents>>,
    bytes: usize,
    bytes_max: usize,
    /// The revision from which on all events are in the ring.
    pub floor: i64,
    /// The newest published revision.
    pub newest: i64,
}

/// The events of one log entry.
pub struct EntryEvents {
    pub last_revision: i64,
    pub bytes: usize,
    pub events: Vec<Event>,
}

impl Ring {
    /// Creates an empty ring, whose events begin after revision `newest`.
    pub fn new(newest: i64, bytes_max: usize) -> Ring {
        Ring { entries: VecDeque::new(), bytes: 0, bytes_max, floor: newest + 1, newest }
    }

    /// Appends the events up to a revision (`None`: they were not built, so the
    /// ring is empty and begins after it).
    pub fn publish(&mut self, events: Option<Vec<Event>>, revision: i64) {
        self.newest = revision;
        match events {
            Some(events) => self.push(events, revision),
            None => self.clear(revision),
        }
    }

    fn push(&mut self, events: Vec<Event>, last_revision: i64) {
        let bytes = events.iter().map(Event::bytes).sum();
        self.bytes += bytes;
        self.entries.push_back(Arc::new(EntryEvents { last_revision, bytes, events }));
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.floor = oldest.last_revision + 1;
        }
    }

    fn clear(&mut self, revision: i64) {
        self.entries.clear();
        self.bytes = 0;
        self.floor = revision + 1;
    }

    /// Returns the entries from a revision on, as many as one call takes, and
    /// the last revision that they cover completely.
    pub fn entries_from(&self, next: i64, until: i64) -> (Vec<Arc<EntryEvents>>, i64) {
        let start = self.entries.partition_point(|entry| entry.last_revision < next);
        let (mut taken, mut events, mut bytes) = (Vec::new(), 0, 0);
        for entry in self.entries.range(start..) {
            taken.push(entry.clone());
            events += entry.events.len();
            bytes += entry.bytes;
            if events >= TAKE_EVENTS || bytes >= TAKE_BYTES || entry.last_revision >= until {
                return (taken, entry.last_revision.min(until));
            }
        }
        (taken, self.newest.min(until))
    }
}
