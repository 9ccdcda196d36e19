//! Publishes changes to watchers and to calls that wait for locks.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::RwLock;
use stele_engine::fatal::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::cursor::Cursor;
use super::event::Event;
use super::history::SharedHistory;
use super::ring::Ring;
use crate::state::{Floor, MemberState};

/// From this size on, the map of lock waiters is occasionally swept.
const WAITERS_SWEPT_MIN: usize = 1024;

/// Publishes changes to watchers.
pub struct Hub {
    pub(super) state: Arc<MemberState>,
    pub(super) ring: RwLock<Ring>,
    newest: watch::Sender<i64>,
    pub(super) cursors: AtomicUsize,
    /// Limits the concurrent readers of history; and the number of such reads.
    history_permits: Arc<Semaphore>,
    pub(super) history_reads: AtomicU64,
    pub(super) history: SharedHistory,
    /// Calls that wait for a lock, by key.
    lock_waiters: Mutex<HashMap<Bytes, Weak<Notify>>>,
}

/// A permit to read history, until it is dropped.
pub struct HistoryPermit(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Hub {
    pub fn new(state: Arc<MemberState>, bytes_max: usize) -> Hub {
        let newest = state.revision();
        let ring = Ring::new(newest, bytes_max);
        Hub {
            state,
            ring: RwLock::new(ring),
            newest: watch::Sender::new(newest),
            cursors: AtomicUsize::new(0),
            history_permits: Arc::new(Semaphore::new(Hub::history_readers_max())),
            history_reads: AtomicU64::new(0),
            history: SharedHistory::default(),
            lock_waiters: Mutex::default(),
        }
    }

    /// Returns the maximum number of concurrent readers of history: half of the
    /// processors, so that lagging watchers do not occupy all of them.
    pub fn history_readers_max() -> usize {
        std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
    }

    /// Waits for a permit to read history.
    pub fn history_permit(&self) -> impl Future<Output = HistoryPermit> + Send + use<> {
        let permit = self.history_permits.clone().acquire_owned();
        async move { HistoryPermit(permit.await.expect("the semaphore is never closed")) }
    }

    /// Returns how often a range of history was read.
    pub fn history_reads(&self) -> u64 {
        self.history_reads.load(Ordering::Relaxed)
    }

    /// Returns the number of watchers that wait for their turn to read history and would
    /// share it.
    #[cfg(test)]
    pub fn history_waiting(&self) -> usize {
        self.history.waiting()
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

    /// Notifies all who wait for locks, because any may have changed.
    pub fn notify_all_locks(&self) {
        let waiters = self.lock_waiters.lock();
        waiters.values().filter_map(Weak::upgrade).for_each(|notify| notify.notify_waiters());
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
        Cursor::new(self.clone(), next, floor, self.newest.subscribe())
    }

    /// Publishes the events up to a revision (`None`: they were not built,
    /// because there were no watchers).
    pub fn publish(&self, events: Option<Vec<Event>>, revision: i64) {
        let mut ring = self.ring.write();
        if revision <= ring.newest {
            return;
        }
        ring.publish(events, revision);
        drop(ring);
        self.newest.send_replace(revision);
    }
}
