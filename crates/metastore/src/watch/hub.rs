//! The ring of recent changes that all watchers share, and cursors over it.
//!
//! A cursor that keeps up reads from the ring, whose events are encoded once
//! and shared. A cursor that has fallen behind the ring reads history in ranges
//! of revisions until it has caught up. So a slow watcher costs no memory and
//! delays nobody. The number of concurrent readers of history is limited; the
//! others queue.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::RwLock;
use stele_engine::fatal::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::event::Event;
use crate::error::{Error, Result};
use crate::state::{Floor, State};

/// The approximate limits of one call of a cursor, which then stops between two
/// revisions.
const TAKE_EVENTS: usize = 1024;
const TAKE_BYTES: usize = 1 << 20;
/// The events of one revision are returned together up to this size.
const REVISION_BYTES_MAX: usize = 16 << 20;
/// The approximate number of changes in history that one call examines.
const TAKE_CHANGES: usize = 16 << 10;
/// From this size on, the map of lock waiters is occasionally swept.
const WAITERS_SWEPT_MIN: usize = 1024;

/// Publishes changes to watchers.
pub struct Hub {
    state: Arc<State>,
    ring: RwLock<Ring>,
    newest: watch::Sender<i64>,
    cursors: AtomicUsize,
    /// Limits the concurrent readers of history; and the number of such reads.
    history_turns: Arc<Semaphore>,
    history_reads: AtomicU64,
    /// Calls that wait for a lock, by key.
    lock_waiters: Mutex<HashMap<Bytes, Weak<Notify>>>,
}

struct Ring {
    groups: VecDeque<Arc<Group>>,
    bytes: usize,
    bytes_max: usize,
    /// The revision from which on all events are in the ring.
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

/// A permit to read history, until it is dropped.
pub struct HistoryTurn(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// A position in the stream of changes.
pub struct Cursor {
    hub: Arc<Hub>,
    next: i64,
    /// The number of changes of revision `next` that have been taken or
    /// skipped.
    next_sub: u32,
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
            history_turns: Arc::new(Semaphore::new(Hub::history_readers_max())),
            history_reads: AtomicU64::new(0),
            lock_waiters: Mutex::default(),
        }
    }

    /// Returns the maximum number of concurrent readers of history: half of the
    /// processors, so that lagging watchers do not occupy all of them.
    pub fn history_readers_max() -> usize {
        std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
    }

    /// Waits for a permit to read history.
    pub fn history_turn(&self) -> impl Future<Output = HistoryTurn> + Send + use<> {
        let turn = self.history_turns.clone().acquire_owned();
        async move { HistoryTurn(turn.await.expect("the semaphore is never closed")) }
    }

    /// Returns how often a range of history was read.
    pub fn history_reads(&self) -> u64 {
        self.history_reads.load(Ordering::Relaxed)
    }

    /// Returns an event that is notified whenever the lock of a key changes.
    pub fn lock_changes(&self, key: &Bytes) -> Arc<Notify> {
        let mut waiters = self.lock_waiters.lock();
        if let Some(notify) = waiters.get(key).and_then(Weak::upgrade) {
            return notify;
        }
        let notify = Arc::new(Notify::new());
        // Refused calls leave entries that no lock change removes.
        if waiters.len() >= WAITERS_SWEPT_MIN && waiters.len().is_power_of_two() {
            waiters.retain(|_, waiting| waiting.strong_count() > 0);
        }
        waiters.insert(key.clone(), Arc::downgrade(&notify));
        notify
    }

    /// Notifies those who wait for the locks of these keys.
    pub fn notify_locks(&self, keys: &BTreeSet<Bytes>) {
        if keys.is_empty() {
            return;
        }
        let mut waiters = self.lock_waiters.lock();
        for key in keys {
            match waiters.get(key).map(Weak::upgrade) {
                Some(Some(notify)) => notify.notify_waiters(),
                Some(None) => {
                    waiters.remove(key);
                }
                None => {}
            }
        }
    }

    /// Returns the newest published revision.
    pub fn revision(&self) -> i64 {
        self.ring.read().newest
    }

    /// Returns whether there are watchers, for which events must be built.
    pub fn is_watched(&self) -> bool {
        self.cursors.load(Ordering::Acquire) > 0
    }

    /// Returns a cursor that starts at revision `next`, for etcd's watchers: it
    /// fails if `next` falls below the compacted revision.
    pub fn cursor(self: &Arc<Self>, next: i64) -> Cursor {
        self.cursor_to(next, Floor::Compacted)
    }

    /// Returns a cursor for native watchers, who may read all retained history.
    pub fn cursor_retained(self: &Arc<Self>, next: i64) -> Cursor {
        self.cursor_to(next, Floor::Retained)
    }

    fn cursor_to(self: &Arc<Self>, next: i64, floor: Floor) -> Cursor {
        self.cursors.fetch_add(1, Ordering::AcqRel);
        Cursor { hub: self.clone(), next, next_sub: 0, floor, newest: self.newest.subscribe() }
    }

    /// Publishes the events up to a revision (`None`: they were not built,
    /// because there were no watchers).
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

    /// Returns the groups from a revision on, as many as one call takes, and
    /// the last revision that they cover completely.
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
    /// Returns the revision below which everything has been taken.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Returns `next()` and the number of its changes that have been taken or
    /// skipped.
    pub fn position(&self) -> (i64, u32) {
        (self.next, self.next_sub)
    }

    /// Returns whether some events of revision `next()` have been taken, and
    /// more may follow.
    pub fn is_inside_revision(&self) -> bool {
        self.next_sub > 0
    }

    /// Takes events up to and including revision `until`, and advances past
    /// them. One call takes a bounded amount; the cursor has caught up when
    /// `next()` is above `until` or the hub's revision. It stops inside a
    /// revision only if that has more than 16 MiB of events, or before the
    /// first wanted one. Events that `wanted` rejects are skipped without
    /// reading their values. Fails with `Compacted` when history does not reach
    /// back to `next()`.
    pub fn take(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        match self.take_recent(until, wanted, out) {
            None => Ok(()),
            Some(to) => self.take_history(to, wanted, out),
        }
    }

    /// Like `take`, but waits for a permit before it reads history.
    pub async fn take_in_turn(
        &mut self,
        until: i64,
        wanted: &mut (dyn FnMut(&[u8]) -> bool + Send),
        out: &mut Vec<Event>,
    ) -> Result<()> {
        let Some(to) = self.take_recent(until, wanted, out) else { return Ok(()) };
        let _turn = self.hub.history_turn().await;
        self.take_history(to, wanted, out)
    }

    /// Returns whether the next events must be read from history.
    pub fn needs_history(&self) -> bool {
        self.next < self.hub.ring.read().floor || self.next_sub > 0
    }

    /// Takes events from the ring. If they are not there, returns the revision
    /// up to which history must be read instead.
    fn take_recent(
        &mut self,
        until: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Option<i64> {
        let ring = self.hub.ring.read();
        let until = until.min(ring.newest);
        if self.next > until {
            return None;
        }
        if self.next < ring.floor || self.next_sub > 0 {
            let to = if self.next < ring.floor { until.min(ring.floor - 1) } else { self.next };
            return Some(to);
        }
        let (groups, known) = ring.groups_from(self.next, until);
        drop(ring);
        for event in groups.iter().flat_map(|group| &group.events) {
            let due = (self.next..=known).contains(&event.revision);
            if due && wanted(event.key()) {
                out.push(event.clone());
            }
        }
        self.move_to(known + 1, 0);
        None
    }

    fn take_history(
        &mut self,
        to: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<()> {
        self.check_floor()?;
        let begun = out.len();
        let reached = self.read_history(to, wanted, out);
        // History that was dropped during the read may be missing from the
        // result.
        match self.check_floor().and(reached) {
            Ok((next, sub)) => {
                self.move_to(next, sub);
                Ok(())
            }
            Err(error) => {
                out.truncate(begun);
                Err(error)
            }
        }
    }

    /// Reads events of revisions up to `to`. Returns the position after them.
    fn read_history(
        &self,
        to: i64,
        wanted: &mut dyn FnMut(&[u8]) -> bool,
        out: &mut Vec<Event>,
    ) -> Result<(i64, u32)> {
        let state = &self.hub.state;
        self.hub.history_reads.fetch_add(1, Ordering::Relaxed);
        let mut scan = state.open_changes((self.next, self.next_sub), to)?;
        let (mut taken, mut bytes, mut examined) = (0, 0, 0);
        let mut last = self.next;
        let mut changes = Vec::new();
        loop {
            let done = scan.next(&mut changes)?;
            for change in changes.drain(..) {
                let enough = taken >= TAKE_EVENTS || bytes >= TAKE_BYTES;
                let between = change.revision > last;
                if between && (enough || examined >= TAKE_CHANGES)
                    || bytes >= REVISION_BYTES_MAX
                    || taken == 0 && examined >= TAKE_CHANGES
                {
                    return Ok((change.revision, change.sub));
                }
                last = change.revision;
                examined += 1;
                if wanted(&change.key) {
                    let compacted = || Error::Compacted { compacted: state.compacted() };
                    let event = state.event(&change)?.ok_or_else(compacted)?;
                    bytes += event.bytes();
                    taken += 1;
                    out.push(event);
                }
            }
            if done {
                return Ok((to + 1, 0));
            }
        }
    }

    fn move_to(&mut self, next: i64, sub: u32) {
        (self.next, self.next_sub) = (next, sub);
    }

    fn check_floor(&self) -> Result<()> {
        let state = &self.hub.state;
        let floor = match self.floor {
            Floor::Compacted => state.compacted(),
            Floor::Begun | Floor::Retained => state.waterline(),
        };
        if self.next < floor { Err(Error::Compacted { compacted: floor }) } else { Ok(()) }
    }

    /// Waits until a revision at or above `next()` is published.
    pub async fn changed(&mut self) {
        let next = self.next;
        // Cannot fail: this cursor holds the hub, which holds the sender.
        let _ = self.newest.wait_for(|newest| *newest >= next).await;
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.hub.cursors.fetch_sub(1, Ordering::AcqRel);
    }
}
