//! Group commit: many threads share one log. They reserve space
//! (`reservation`), enqueue entries and wait for them; one of the waiters
//! writes and syncs for all (`leader`). A single caller therefore does its own
//! I/O without a thread switch. A background thread (`background`) handles
//! what nobody waits for.

mod background;
mod leader;
mod reservation;

use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::callbacks::{Callback, Callbacks};
use super::counters::{Counters, LogStats};
use super::entry::LogEntry;
use super::space::SpaceEstimate;
use super::writer::LogWriter;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::world::Clock;
use leader::Batching;
pub use reservation::LogReservation;

/// What the threads that share a log know of each other.
#[derive(Default)]
struct GroupState {
    /// Entries not yet taken by a leader, in index order.
    queue: Vec<LogEntry>,
    /// An empty vector with capacity, swapped with `queue`.
    spare: Vec<LogEntry>,
    /// Index of the last entry enqueued.
    last: u64,
    /// Log space available to entries, and how much of it is reserved for
    /// entries not yet written. `space` is never less than `reserved`.
    space: u64,
    reserved: u64,
    /// A leader is writing the queue; there is at most one.
    writing: bool,
    /// A leader is syncing; others may write meanwhile.
    syncing: bool,
    /// Number of waiters for durability that arrived since the last sync
    /// started, and before that sync.
    arrived: usize,
    arrived_before: usize,
    /// Duration of the last sync.
    sync_time: Duration,
    /// When the oldest entry that is not durable became pending.
    pending_since: Option<Duration>,
    /// Whether a background thread is running, and whether it sleeps until
    /// notified.
    has_background_thread: bool,
    asleep: bool,
    /// The background thread must make entries up to this index durable now.
    durable_wanted: u64,
    /// The background thread must write the queue now.
    write_requested: bool,
    /// Bytes of space that the background thread must allocate, and the error
    /// of the last attempt.
    space_requested: u64,
    space_error: Option<Error>,
    /// The free space below which the background thread allocates more before
    /// anybody has to wait for it, and whether it has been asked to.
    space_low: u64,
    space_ahead: bool,
    stopping: bool,
    stopped: Option<Arc<Error>>,
}

/// A log that many threads share.
pub struct GroupLog {
    state: Mutex<GroupState>,
    writer: Mutex<LogWriter>,
    /// Everything up to these indices is written and durable, respectively.
    written: AtomicU64,
    durable: AtomicU64,
    queued_bytes: AtomicU64,
    /// Whether `GroupState::stopped` is set; readable without the lock.
    failed: AtomicBool,
    written_moved: Condvar,
    durable_moved: Condvar,
    /// Ends the leader's linger.
    gathered: Condvar,
    /// Wakes the background thread.
    work: Condvar,
    callbacks: Callbacks,
    /// Called on every event.
    listener: OnceLock<Listener>,
    clock: Arc<dyn Clock>,
    linger: Duration,
    counters: Arc<Counters>,
    estimate: SpaceEstimate,
}

/// Called with the log's lock held: must not call back into the log.
pub type Listener = Box<dyn Fn(LogEvent) + Send + Sync>;

/// An event reported to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The queue shrank, space was added, or an attempt to add space failed.
    Progress,
    /// The log failed permanently.
    Failed,
}

impl GroupLog {
    /// Shares `writer`. Entries up to `last_index` are already in the log.
    pub fn new(
        writer: LogWriter,
        last_index: u64,
        clock: Arc<dyn Clock>,
        linger: Duration,
    ) -> GroupLog {
        let (counters, estimate) = (writer.counters(), writer.estimate());
        let state = GroupState { last: last_index, ..GroupState::default() };
        GroupLog {
            state: Mutex::new(state),
            writer: Mutex::new(writer),
            written: AtomicU64::new(last_index),
            durable: AtomicU64::new(last_index),
            queued_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            written_moved: Condvar::new(),
            durable_moved: Condvar::new(),
            gathered: Condvar::new(),
            work: Condvar::new(),
            callbacks: Callbacks::default(),
            listener: OnceLock::new(),
            clock,
            linger,
            counters,
            estimate,
        }
    }

    /// Sets the listener. Panics if there is one already.
    pub fn set_listener(&self, listener: Listener) {
        assert!(self.listener.set(listener).is_ok(), "a log has one listener");
    }

    fn notify_listener(&self, event: LogEvent) {
        if let Some(listener) = self.listener.get() {
            listener(event);
        }
    }

    /// Queues an entry. Indices must increase: the caller holds the lock that
    /// assigned this one.
    pub fn enqueue(&self, entry: LogEntry) -> Result<()> {
        let reservation = self.reserve(entry.payload.len())?;
        self.enqueue_reserved(entry, reservation)
    }

    /// Like `enqueue`, for an entry with reserved space.
    pub fn enqueue_reserved(
        &self,
        entry: LogEntry,
        mut reservation: LogReservation<'_>,
    ) -> Result<()> {
        entry.check()?;
        assert_eq!(
            reservation.bytes,
            self.estimate.entry(entry.payload.len()),
            "reserved for another entry"
        );
        let mut state = self.state.lock();
        state.check()?;
        assert!(entry.index > state.last, "index {} after {}", entry.index, state.last);
        state.last = entry.index;
        if state.pending_since.is_none() {
            state.pending_since = Some(self.clock.elapsed());
        }
        self.queued_bytes.fetch_add(mem::take(&mut reservation.bytes), Ordering::Relaxed);
        state.queue.push(entry);
        // Once awake, the thread polls while there is traffic, so a busy log
        // does not pay for a wake-up per entry.
        if mem::take(&mut state.asleep) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Number of bytes enqueued but not yet written.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Returns the error if the log has failed permanently.
    pub fn failed(&self) -> Option<Error> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.state.lock().check().err() } else { None }
    }

    /// Returns the index up to which everything is written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the index up to which everything is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub fn stats(&self) -> LogStats {
        self.counters.snapshot()
    }

    pub fn wait_durable(&self, index: u64) -> Result<()> {
        self.wait(index, Durability::Durable)
    }

    /// Brings everything enqueued so far to `durability`.
    pub fn drive(&self, durability: Durability) -> Result<()> {
        let last = self.state.lock().last;
        self.wait(last, durability)
    }

    /// Waits until fewer than `bytes` bytes are queued.
    pub fn wait_queue_below(&self, bytes: u64) -> Result<()> {
        let enough = |_: &mut GroupState| self.queued_bytes() < bytes.max(1);
        self.wait_until(enough, Durability::Written)
    }

    /// Calls `callback` once `index` is durable, or can no longer become
    /// durable. Callbacks run in index order, on the leader's thread or on this
    /// one.
    pub fn on_durable(&self, index: u64, callback: Callback) {
        {
            let mut state = self.state.lock();
            assert!(index <= state.last, "index {index} was never enqueued");
            self.callbacks.add(index, callback);
            if index <= self.durable() {
                self.callbacks.reached(self.durable());
            } else if let Some(cause) = &state.stopped {
                self.callbacks.failed(cause);
            } else {
                self.arrive(&mut state);
                self.work.notify_one();
            }
        }
        self.callbacks.fire();
    }

    /// Makes everything enqueued so far durable on this thread and runs the
    /// callbacks, without lingering. Returns `None` if another thread is
    /// already syncing. For callers that do their own batching.
    pub fn sync_if_free(&self, index: u64) -> Option<Result<()>> {
        let mut state = self.state.lock();
        if self.has(index, Durability::Durable) {
            return Some(Ok(()));
        }
        if let Err(error) = state.check() {
            return Some(Err(error));
        }
        if state.syncing {
            return None;
        }
        self.lead_sync(&mut state, Batching::Immediate);
        let outcome = state.check();
        drop(state);
        self.callbacks.fire();
        Some(outcome)
    }

    /// Gives access to the writer between two batches, for inspection or to
    /// release segments.
    pub fn with_writer<T>(&self, use_it: impl FnOnce(&mut LogWriter) -> T) -> T {
        use_it(&mut self.writer.lock())
    }

    /// Runs a step that writes something other than entries.
    pub fn write(&self, step: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        while state.writing {
            self.written_moved.wait(&mut state);
        }
        // With no free space visible, callers of `reserve` wait until this step
        // is done.
        let reserved = state.reserved;
        state.space = reserved;
        self.lead(&mut state, |writer| {
            writer.keep_reserved(reserved);
            step(writer)
        })
    }

    /// Waits until the entry `index`, and all before it, have reached
    /// `durability`.
    pub fn wait(&self, index: u64, durability: Durability) -> Result<()> {
        if self.has(index, durability) {
            return Ok(());
        }
        let mut counted = durability == Durability::Written;
        let reached = |state: &mut GroupState| {
            if self.has(index, durability) {
                return true;
            }
            assert!(index <= state.last, "index {index} was never enqueued");
            if !mem::replace(&mut counted, true) {
                self.arrive(state);
            }
            false
        };
        self.wait_until(reached, durability)
    }

    fn has(&self, index: u64, durability: Durability) -> bool {
        let reached = match durability {
            // An entry is accepted as soon as it is enqueued.
            Durability::Accepted => return true,
            Durability::Written => self.written(),
            Durability::Durable => self.durable(),
        };
        reached >= index
    }
}

impl GroupState {
    fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped(cause.clone())),
            None => Ok(()),
        }
    }
}
