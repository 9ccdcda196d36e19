//! Group commit: many threads share one log. The first waiter that finds no
//! leader becomes the leader and writes, or writes and syncs, everything
//! queued; the others wait for the outcome. A single caller therefore does its
//! own I/O without a thread switch. During a sync, waiters for `Written` keep
//! writing, while waiters for `Durable` batch up for the next sync.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::callbacks::{Callback, Callbacks};
use super::counters::{Counters, LogStats};
use super::entry::Entry;
use super::room::Measure;
use super::writer::LogWriter;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::world::Clock;

/// Upper bound on the leader's linger, as a multiple of the last sync's
/// duration. A sync and its wake-ups cost about as much CPU as a small commit,
/// so a larger group pays for the wait as soon as CPU is scarce.
const GATHER_SYNCS: u32 = 2;
/// Absolute upper bound on the linger, for slow disks: by then every waiter
/// that is coming back has arrived.
const GATHER_MAX: Duration = Duration::from_micros(300);

/// The durability that a waiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the page cache: survives a crash of the process.
    Written,
    /// Synced: survives a power failure.
    Durable,
}

/// Whether the leader lingers for the waiters that shared the previous sync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Expected,
    Here,
}

#[derive(Default)]
struct State {
    /// Entries not yet taken by a leader, in index order.
    queue: Vec<Entry>,
    /// An empty vector with capacity, swapped with `queue`.
    spare: Vec<Entry>,
    /// Index of the last entry enqueued.
    last: u64,
    /// Log space available to entries, and how much of it is reserved for
    /// entries not yet written. `room` is never less than `promised`.
    room: u64,
    promised: u64,
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
    attended: bool,
    asleep: bool,
    /// The background thread must make entries up to this index durable now.
    wanted: u64,
    /// The background thread must write the queue now.
    write_requested: bool,
    /// Bytes of space that the background thread must allocate, and the error
    /// of the last attempt.
    space_requested: u64,
    space_error: Option<Error>,
    stopping: bool,
    stopped: Option<Arc<Error>>,
}

pub struct GroupLog {
    state: Mutex<State>,
    writer: Mutex<LogWriter>,
    /// Everything up to these indices is written and durable, respectively.
    written: AtomicU64,
    durable: AtomicU64,
    queued_bytes: AtomicU64,
    /// Whether `State::stopped` is set; readable without the lock.
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
    measure: Measure,
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

/// A reservation of log space for one entry, released on drop if unused.
pub struct Promise<'a> {
    log: &'a GroupLog,
    bytes: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.state.lock().promised -= self.bytes;
        }
    }
}

impl GroupLog {
    /// Shares `writer`. Entries up to `last_index` are already in the log.
    pub fn new(
        writer: LogWriter,
        last_index: u64,
        clock: Arc<dyn Clock>,
        linger: Duration,
    ) -> GroupLog {
        let (counters, measure) = (writer.counters(), writer.measure());
        let state = State { last: last_index, ..State::default() };
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
            measure,
        }
    }

    /// Reserves space for an entry. An error means that the disk is full; it
    /// changes nothing, and the next call tries again.
    pub fn promise(&self, payload_bytes: usize) -> Result<Promise<'_>> {
        let bytes = self.measure.entry(payload_bytes);
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.promised + bytes <= state.room {
                state.promised += bytes;
                return Ok(Promise { log: self, bytes });
            }
            if state.writing {
                self.written_moved.wait(&mut state);
            } else {
                let wanted = state.promised + bytes;
                self.lead(&mut state, |writer| writer.reserve(wanted))?;
            }
        }
    }

    /// Like `promise`, but never waits: returns `None` if space must be
    /// allocated first.
    pub fn try_promise(&self, payload_bytes: usize) -> Result<Option<Promise<'_>>> {
        let bytes = self.measure.entry(payload_bytes);
        let mut state = self.state.lock();
        state.check()?;
        if state.promised + bytes > state.room {
            return Ok(None);
        }
        state.promised += bytes;
        Ok(Some(Promise { log: self, bytes }))
    }

    /// Asks the background thread to allocate space for an entry. The listener
    /// is notified after the attempt.
    pub fn request_space(&self, payload_bytes: usize) {
        let mut state = self.state.lock();
        state.space_requested = state.space_requested.max(self.measure.entry(payload_bytes));
        self.work.notify_one();
    }

    /// Returns and clears the error of the last failed attempt to allocate
    /// space.
    pub fn take_space_error(&self) -> Option<Error> {
        self.state.lock().space_error.take()
    }

    /// Asks the background thread to write the queue. The listener is notified
    /// afterwards.
    pub fn request_write(&self) {
        let mut state = self.state.lock();
        if !state.write_requested {
            state.write_requested = true;
            self.work.notify_one();
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
    pub fn enqueue(&self, entry: Entry) -> Result<()> {
        let promise = self.promise(entry.payload.len())?;
        self.enqueue_promised(entry, promise)
    }

    /// Like `enqueue`, for an entry with reserved space.
    pub fn enqueue_promised(&self, entry: Entry, mut promise: Promise<'_>) -> Result<()> {
        entry.check()?;
        assert_eq!(promise.bytes, self.measure.entry(entry.payload.len()), "room for another");
        let mut state = self.state.lock();
        state.check()?;
        assert!(entry.index > state.last, "index {} after {}", entry.index, state.last);
        state.last = entry.index;
        if state.pending_since.is_none() {
            state.pending_since = Some(self.clock.elapsed());
        }
        self.queued_bytes.fetch_add(mem::take(&mut promise.bytes), Ordering::Relaxed);
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

    pub fn wait_written(&self, index: u64) -> Result<()> {
        self.wait(index, Level::Written)
    }

    pub fn wait_durable(&self, index: u64) -> Result<()> {
        self.wait(index, Level::Durable)
    }

    /// Like `wait_durable`, for low-priority threads that may get little CPU
    /// time: the background thread does the work, so that no urgent caller
    /// waits for a slow leader.
    pub fn wait_durable_idly(&self, index: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.attended && !self.has(index, Level::Durable) {
            state.check()?;
            state.wanted = state.wanted.max(index);
            self.work.notify_one();
            self.durable_moved.wait(&mut state);
        }
        drop(state);
        self.wait_durable(index)
    }

    /// Brings everything enqueued so far to `level`.
    pub fn drive(&self, level: Level) -> Result<()> {
        let last = self.state.lock().last;
        self.wait(last, level)
    }

    /// Waits until fewer than `bytes` bytes are queued.
    pub fn wait_queue_below(&self, bytes: u64) -> Result<()> {
        let enough = |_: &mut State| self.queued_bytes() < bytes.max(1);
        self.wait_until(enough, Level::Written)
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
        if self.has(index, Level::Durable) {
            return Some(Ok(()));
        }
        if let Err(error) = state.check() {
            return Some(Err(error));
        }
        if state.syncing {
            return None;
        }
        self.lead_sync(&mut state, Company::Here);
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
        // With no free space visible, callers of `promise` wait until this step
        // is done.
        let promised = state.promised;
        state.room = promised;
        self.lead(&mut state, |writer| {
            writer.keep_promised(promised);
            step(writer)
        })
    }

    /// The body of the background thread: makes entries durable after `linger`
    /// if nobody waits for them, and immediately if only callbacks do. Returns
    /// after `stop` or a failure.
    pub fn run(&self) {
        let mut state = self.state.lock();
        state.attended = true;
        while !state.stopping && state.stopped.is_none() {
            if mem::take(&mut state.write_requested) {
                // The error is recorded in the state and ends the loop.
                let driven = MutexGuard::unlocked(&mut state, || self.drive(Level::Written));
                if let Err(error) = driven {
                    tracing::error!(%error, "the log has stopped");
                }
                continue;
            }
            if state.space_requested > 0 {
                self.make_space(&mut state);
                continue;
            }
            match self.due_in(&state) {
                None => {
                    state.asleep = true;
                    self.work.wait(&mut state);
                    state.asleep = false;
                }
                Some(Duration::ZERO) => {
                    // The error is recorded in the state and ends the loop.
                    let driven = MutexGuard::unlocked(&mut state, || self.drive(Level::Durable));
                    if let Err(error) = driven {
                        tracing::error!(%error, "the log has stopped");
                    }
                }
                Some(wait) => {
                    self.work.wait_for(&mut state, wait);
                }
            }
        }
        state.attended = false;
        self.durable_moved.notify_all();
    }

    fn make_space(&self, state: &mut MutexGuard<'_, State>) {
        while state.writing {
            self.written_moved.wait(state);
        }
        let wanted = state.promised + mem::take(&mut state.space_requested);
        if state.room < wanted {
            state.space_error = self.lead(state, |writer| writer.reserve(wanted)).err();
        }
        self.notify_listener(LogEvent::Progress);
    }

    /// Stops `run`. Queued entries stay queued: call `drive` first.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }

    /// Time until the background thread must act; `None` if it is idle.
    fn due_in(&self, state: &State) -> Option<Duration> {
        let since = state.pending_since?;
        if state.wanted > self.durable() || self.callbacks.lowest().is_some() {
            return Some(Duration::ZERO);
        }
        Some((since + self.linger).saturating_sub(self.clock.elapsed()))
    }

    fn wait(&self, index: u64, level: Level) -> Result<()> {
        if self.has(index, level) {
            return Ok(());
        }
        let mut counted = level == Level::Written;
        let reached = |state: &mut State| {
            if self.has(index, level) {
                return true;
            }
            assert!(index <= state.last, "index {index} was never enqueued");
            if !mem::replace(&mut counted, true) {
                self.arrive(state);
            }
            false
        };
        self.wait_until(reached, level)
    }

    /// Leads, or waits for the current leader, until `done` returns true.
    fn wait_until(&self, mut done: impl FnMut(&mut State) -> bool, level: Level) -> Result<()> {
        let mut state = self.state.lock();
        let mut led = false;
        let outcome = loop {
            if done(&mut state) {
                break Ok(());
            }
            if let Err(error) = state.check() {
                break Err(error);
            }
            match level {
                Level::Written if state.writing => self.written_moved.wait(&mut state),
                Level::Written => self.lead_write(&mut state),
                Level::Durable if state.syncing => self.durable_moved.wait(&mut state),
                Level::Durable => {
                    self.lead_sync(&mut state, Company::Expected);
                    led = true;
                }
            }
        };
        led |= outcome.is_err();
        drop(state);
        if led {
            self.callbacks.fire();
        }
        outcome
    }

    /// Counts a waiter for durability, and wakes a lingering leader once as
    /// many have arrived as shared the previous sync.
    fn arrive(&self, state: &mut State) {
        state.arrived += 1;
        if state.arrived == state.arrived_before {
            self.gathered.notify_one();
        }
    }

    fn has(&self, index: u64, level: Level) -> bool {
        let reached = match level {
            Level::Written => self.written(),
            Level::Durable => self.durable(),
        };
        reached >= index
    }

    /// Writes the whole queue with one write.
    fn lead_write(&self, state: &mut MutexGuard<'_, State>) {
        let spare = mem::take(&mut state.spare);
        let mut batch = mem::replace(&mut state.queue, spare);
        let last = state.last;
        let bytes = batch.iter().map(|entry| self.measure.entry(entry.payload.len())).sum();
        let outcome = self.lead(state, |writer| {
            let outcome = writer.append(&batch);
            batch.clear();
            outcome
        });
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.promised -= bytes;
        state.spare = batch;
        self.notify_listener(LogEvent::Progress);
        match outcome {
            Ok(()) => self.written.store(last, Ordering::Release),
            Err(error) => self.fail(state, error),
        }
    }

    /// Runs `step` on the writer with the state unlocked, so that others can
    /// enqueue. No other thread is writing.
    fn lead(
        &self,
        state: &mut MutexGuard<'_, State>,
        step: impl FnOnce(&mut LogWriter) -> Result<()>,
    ) -> Result<()> {
        state.writing = true;
        let (outcome, room) = MutexGuard::unlocked(state, || {
            let mut writer = self.writer.lock();
            (step(&mut writer), writer.capacity())
        });
        state.writing = false;
        state.room = room;
        self.written_moved.notify_all();
        self.notify_listener(LogEvent::Progress);
        outcome
    }

    /// Makes everything queued or written durable.
    fn lead_sync(&self, state: &mut MutexGuard<'_, State>, company: Company) {
        state.syncing = true;
        if company == Company::Expected {
            self.gather(state);
        }
        state.arrived_before = mem::take(&mut state.arrived);
        let target = state.last;
        while self.written() < target && state.stopped.is_none() {
            if state.writing {
                self.written_moved.wait(state);
            } else {
                self.lead_write(state);
            }
        }
        if state.stopped.is_none() {
            let written = self.written();
            let begun = self.clock.elapsed();
            match MutexGuard::unlocked(state, || self.sync_written()) {
                // After a failure nothing becomes durable, not even what this
                // sync covered.
                Ok(()) if state.stopped.is_some() => {}
                Ok(()) => self.publish_durable(state, written, begun),
                Err(error) => self.fail(state, error),
            }
        }
        state.syncing = false;
        self.durable_moved.notify_all();
    }

    /// Syncs with the writer unlocked, so that others can append meanwhile.
    fn sync_written(&self) -> Result<()> {
        let Some(point) = self.writer.lock().begin_sync()? else { return Ok(()) };
        let outcome = point.sync();
        self.writer.lock().end_sync(&point, outcome)
    }

    fn publish_durable(&self, state: &mut State, written: u64, begun: Duration) {
        let now = self.clock.elapsed();
        state.sync_time = now.saturating_sub(begun);
        self.durable.store(written, Ordering::Release);
        self.callbacks.reached(written);
        state.pending_since = (state.last > written).then_some(now);
        if state.last > written && self.callbacks.lowest().is_some() {
            // Entries that arrived during the sync have callbacks but no waiter
            // to lead the next one.
            self.work.notify_one();
        }
    }

    /// Fails the log permanently and notifies all waiters.
    fn fail(&self, state: &mut State, error: Error) {
        let cause = match error {
            Error::Stopped(cause) => cause,
            error => Arc::new(error),
        };
        self.callbacks.failed(&cause);
        state.stopped = Some(cause);
        self.failed.store(true, Ordering::Release);
        state.queue = Vec::new();
        self.notify_listener(LogEvent::Failed);
        self.written_moved.notify_all();
        self.durable_moved.notify_all();
    }

    /// Lingers briefly if more waiters shared the previous sync: it woke them,
    /// and they are likely to return soon.
    fn gather(&self, state: &mut MutexGuard<'_, State>) {
        let company = state.arrived_before;
        if company <= 1 || state.arrived >= company {
            return;
        }
        let patience = (state.sync_time * GATHER_SYNCS).min(GATHER_MAX);
        self.gathered.wait_while_for(state, |state| state.arrived < company, patience);
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped(cause.clone())),
            None => Ok(()),
        }
    }
}
