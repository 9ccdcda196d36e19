//! The ring of recent changes that all watchers share, and cursors over it.
//!
//! A cursor that keeps up walks the ring, whose events are encoded once and
//! shared. One that fell behind the ring reads from history, a stretch of
//! revisions at a time, until it is back. So a slow watcher costs no memory
//! and holds nobody up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;

use super::event::Event;
use crate::error::{Error, Result};
use crate::state::{Floor, State};

/// What a cursor takes at once, about.
const TAKE_EVENTS: usize = 1024;
const TAKE_BYTES: usize = 1 << 20;
/// Revisions that are read from history at once.
const HISTORY_REVISIONS: i64 = 1000;

/// Where changes are published and watched.
pub struct Hub {
    state: Arc<State>,
    ring: RwLock<Ring>,
    newest: watch::Sender<i64>,
    cursors: AtomicUsize,
}

struct Ring {
    groups: VecDeque<Arc<Group>>,
    bytes: usize,
    bytes_max: usize,
    /// All events from this revision on are in the ring.
    floor: i64,
    /// The newest published revision.
    newest: i64,
}

/// The events of one log entry.
struct Group {
    last_revision: i64,
    bytes: usize,
    events: Vec<Event>,
}

/// A place in the stream of changes.
pub struct Cursor {
    hub: Arc<Hub>,
    next: i64,
    floor: Floor,
    newest: watch::Receiver<i64>,
}

impl Hub {
    pub fn new(state: Arc<State>, bytes_max: usize) -> Hub {
        let newest = state.revision();
        let ring = Ring { groups: VecDeque::new(), bytes: 0, bytes_max, floor: newest + 1, newest };
        Hub {
            state,
            ring: RwLock::new(ring),
            newest: watch::Sender::new(newest),
            cursors: AtomicUsize::new(0),
        }
    }

    /// The newest published revision.
    pub fn revision(&self) -> i64 {
        self.ring.read().newest
    }

    /// Whether it is worth making events.
    pub fn is_watched(&self) -> bool {
        self.cursors.load(Ordering::Acquire) > 0
    }

    /// A cursor whose first event is of revision `next` or later, for etcd's
    /// watchers: it can fall behind what Compact has left.
    pub fn cursor(self: &Arc<Self>, next: i64) -> Cursor {
        self.cursor_to(next, Floor::Compacted)
    }

    /// The same for native watchers, who may go back as far as history does.
    pub fn cursor_retained(self: &Arc<Self>, next: i64) -> Cursor {
        self.cursor_to(next, Floor::Retained)
    }

    fn cursor_to(self: &Arc<Self>, next: i64, floor: Floor) -> Cursor {
        self.cursors.fetch_add(1, Ordering::AcqRel);
        Cursor { hub: self.clone(), next, floor, newest: self.newest.subscribe() }
    }

    /// The state has come to this revision, by these events (`None`: they were
    /// not made, because nobody watched).
    pub fn publish(&self, events: Option<Vec<Event>>, revision: i64) {
        let mut ring = self.ring.write();
        if revision <= ring.newest {
            return;
        }
        ring.newest = revision;
        match events {
            Some(events) => ring.push(events, revision),
            None => ring.clear(revision),
        }
        drop(ring);
        self.newest.send_replace(revision);
    }
}

impl Ring {
    fn push(&mut self, events: Vec<Event>, last_revision: i64) {
        let bytes = events.iter().map(Event::bytes).sum();
        self.bytes += bytes;
        self.groups.push_back(Arc::new(Group { last_revision, bytes, events }));
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.groups.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.floor = oldest.last_revision + 1;
        }
    }

    fn clear(&mut self, revision: i64) {
        self.groups.clear();
        self.bytes = 0;
        self.floor = revision + 1;
    }

    /// Groups from a revision on, as many as are taken at once, and the last
    /// revision that is then known in full.
    fn groups_from(&self, next: i64, until: i64) -> (Vec<Arc<Group>>, i64) {
        let start = self.groups.partition_point(|group| group.last_revision < next);
        let (mut taken, mut events, mut bytes) = (Vec::new(), 0, 0);
        for group in self.groups.range(start..) {
            taken.push(group.clone());
            events += group.events.len();
            bytes += group.bytes;
            if events >= TAKE_EVENTS || bytes >= TAKE_BYTES || group.last_revision >= until {
                return (taken, group.last_revision.min(until));
            }
        }
        (taken, self.newest.min(until))
    }
}

impl Cursor {
    /// Everything below this revision has been taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Takes events of whole revisions, up to and including `until`, and moves
    /// behind them. A call takes a bounded amount; it has caught up when
    /// `next()` is above `until` or the hub's revision. Events that `wanted`
    /// turns down are passed over (cheaply, also when read from history).
    /// Fails with `Compacted` when history does not reach back to `next()`.
    pub fn take(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        let ring = self.hub.ring.read();
        let until = until.min(ring.newest);
        if self.next > until {
            return Ok(());
        }
        if self.next < ring.floor {
            let to = until.min(ring.floor - 1).min(self.next.saturating_add(HISTORY_REVISIONS - 1));
            drop(ring);
            return self.take_history(to, wanted, out);
        }
        let (groups, known) = ring.groups_from(self.next, until);
        drop(ring);
        for event in groups.iter().flat_map(|group| &group.events) {
            let due = (self.next..=known).contains(&event.revision);
            if due && wanted(event.key()) {
                out.push(event.clone());
            }
        }
        self.next = known + 1;
        Ok(())
    }

    fn take_history(
        &mut self,
        to: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        let state = &self.hub.state;
        self.check_floor()?;
        let mut changes = Vec::new();
        state.changes(self.next, to, &mut |change| {
            if wanted(&change.key) {
                changes.push(change);
            }
        })?;
        let (begun, mut reached) = (out.len(), to);
        let mut last = self.next;
        for change in &changes {
            if change.revision > last && out.len() - begun >= TAKE_EVENTS {
                reached = last;
                break;
            }
            last = change.revision;
            let compacted = || Error::Compacted { compacted: state.compacted() };
            out.push(state.event(change)?.ok_or_else(compacted)?);
        }
        // What was dropped while it was being read may be missing.
        if let Err(error) = self.check_floor() {
            out.truncate(begun);
            return Err(error);
        }
        self.next = reached + 1;
        Ok(())
    }

    fn check_floor(&self) -> Result<()> {
        let state = &self.hub.state;
        let floor = match self.floor {
            Floor::Compacted => state.compacted(),
            Floor::Retained => state.waterline(),
        };
        if self.next < floor { Err(Error::Compacted { compacted: floor }) } else { Ok(()) }
    }

    /// Waits until a revision at or above `next()` is published.
    pub async fn changed(&mut self) {
        let next = self.next;
        // The hub, which this cursor keeps, holds the sender.
        let _ = self.newest.wait_for(|newest| *newest >= next).await;
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.hub.cursors.fetch_sub(1, Ordering::AcqRel);
    }
}
