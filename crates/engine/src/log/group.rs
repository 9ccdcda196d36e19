//! Many threads, one log: group commit. Whoever waits first while nobody leads
//! writes, or writes and syncs, for all that is queued; the others wait for the
//! outcome. A single caller therefore does its own writing, without another
//! thread. While one syncs, those who only want to be written go on writing;
//! those who want to be durable gather for the next sync.

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

/// How many syncs a leader waits for company at most. A sync and the wake-ups
/// around it cost the processor as much as a small commit does, so a fuller
/// group pays for the wait as soon as processors are short.
const GATHER_SYNCS: u32 = 2;
/// The same where syncs are slow: by then everybody is back who will be.
const GATHER_MAX: Duration = Duration::from_micros(300);

/// How sure a waiter wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the kernel: survives the end of the process.
    Written,
    /// Synced: survives the end of the machine's power.
    Durable,
}

/// Whether a sync is worth a wait for those who shared the last one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Expected,
    Here,
}

#[derive(Default)]
struct State {
    /// Entries nobody has taken yet, in index order.
    queue: Vec<Entry>,
    /// An empty list with capacity, to swap with `queue`.
    spare: Vec<Entry>,
    /// Index of the last entry enqueued.
    last: u64,
    /// Room that entries can take, and what of it was promised to entries that
    /// are not written yet. Never less than promised.
    room: u64,
    promised: u64,
    /// Somebody is writing what was queued; nobody else does.
    writing: bool,
    /// Somebody is syncing; others may write meanwhile.
    syncing: bool,
    /// Who came for durability since the last sync was begun, and before it.
    arrived: usize,
    arrived_before: usize,
    /// How long the last sync took.
    sync_time: Duration,
    /// Since when something is not durable.
    pending_since: Option<Duration>,
    /// Whether there is a background thread, and whether it sleeps until it is
    /// woken.
    attended: bool,
    asleep: bool,
    /// The background thread is to make everything up to here durable now.
    wanted: u64,
    /// The background thread is to write what is queued now.
    write_requested: bool,
    /// Bytes of space that the background thread is to make, and why the last
    /// attempt failed.
    space_requested: u64,
    space_error: Option<Error>,
    stopping: bool,
    stopped: Option<Arc<Error>>,
}

pub struct GroupLog {
    state: Mutex<State>,
    writer: Mutex<LogWriter>,
    /// Everything up to these indices is written, and durable.
    written: AtomicU64,
    durable: AtomicU64,
    queued_bytes: AtomicU64,
    /// Whether `State::stopped` is set, for a look without the lock.
    failed: AtomicBool,
    written_moved: Condvar,
    durable_moved: Condvar,
    /// The leader's wait for more company.
    gathered: Condvar,
    /// The background thread's sleep.
    work: Condvar,
    callbacks: Callbacks,
    /// Called on every event.
    listener: OnceLock<Listener>,
    clock: Arc<dyn Clock>,
    linger: Duration,
    counters: Arc<Counters>,
    measure: Measure,
}

/// Called under the lock of the log: must not call back into it.
pub type Listener = Box<dyn Fn(LogEvent) + Send + Sync>;

/// What a listener is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The queue has become shorter, or there is more space, or no space could
    /// be made.
    Progress,
    /// The log has failed for good.
    Failed,
}

/// Room in the log for one entry, given back if it is not used.
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
    /// Shares `writer`. Everything up to `last_index` is in the log already.
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

    /// Takes room for an entry. Without any the disk is full, and nothing has
    /// happened; the next to ask tries again.
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

    /// The same without waiting: `None` when space has to be made first.
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

    /// Has the background thread make space for an entry; the listener is
    /// called when it has tried.
    pub fn request_space(&self, payload_bytes: usize) {
        let mut state = self.state.lock();
        state.space_requested = state.space_requested.max(self.measure.entry(payload_bytes));
        self.work.notify_one();
    }

    /// Why the background thread could not make space, reported once.
    pub fn take_space_error(&self) -> Option<Error> {
        self.state.lock().space_error.take()
    }

    /// Has the background thread write what is queued; the listener is called
    /// when that is done.
    pub fn request_write(&self) {
        let mut state = self.state.lock();
        if !state.write_requested {
            state.write_requested = true;
            self.work.notify_one();
        }
    }

    /// Sets the one function that is called on every event.
    pub fn set_listener(&self, listener: Listener) {
        assert!(self.listener.set(listener).is_ok(), "a log has one listener");
    }

    fn notify_listener(&self, event: LogEvent) {
        if let Some(listener) = self.listener.get() {
            listener(event);
        }
    }

    /// Queues an entry. Indices rise: the caller holds the lock that gave out
    /// this one.
    pub fn enqueue(&self, entry: Entry) -> Result<()> {
        let promise = self.promise(entry.payload.len())?;
        self.enqueue_promised(entry, promise)
    }

    /// The same for an entry that was promised room.
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
        // Once awake, the thread looks again by itself while there is traffic,
        // so a busy log is not slowed by waking it for every entry.
        if mem::take(&mut state.asleep) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Bytes enqueued and not yet written.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Why nothing is taken any more, if that is so.
    pub fn failed(&self) -> Option<Error> {
        let failed = self.failed.load(Ordering::Acquire);
        if failed { self.state.lock().check().err() } else { None }
    }

    /// Everything up to this index is written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Everything up to this index is durable.
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

    /// As `wait_durable`, for those who may have little processor time: they
    /// leave the work to the background thread, so that nobody in a hurry has
    /// to wait for them.
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

    /// Calls `callback` when `index` is durable, or when it never will be. The
    /// calls come in index order, from whichever thread led or from this one.
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

    /// Makes everything so far durable in this thread, and tells callbacks so,
    /// unless another thread is at it: then `None`. For callers that have
    /// gathered company by themselves; nobody else is waited for.
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

    /// Reaches the writer, between two batches, to look or to release.
    pub fn with_writer<T>(&self, use_it: impl FnOnce(&mut LogWriter) -> T) -> T {
        use_it(&mut self.writer.lock())
    }

    /// Has the writer write something else than entries.
    pub fn write(&self, step: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        while state.writing {
            self.written_moved.wait(&mut state);
        }
        // With no room to see, who wants to be promised some waits for this.
        let promised = state.promised;
        state.room = promised;
        self.lead(&mut state, |writer| {
            writer.keep_promised(promised);
            step(writer)
        })
    }

    /// The body of a background thread: makes durable what nobody waits for,
    /// and at once what only callbacks wait for. Ends after `stop`, and after a
    /// failure.
    pub fn run(&self) {
        let mut state = self.state.lock();
        state.attended = true;
        while !state.stopping && state.stopped.is_none() {
            if mem::take(&mut state.write_requested) {
                // A failure is remembered in the state and ends the loop.
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
                    // A failure is remembered in the state and ends the loop.
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

    /// Ends `run`. What is queued stays queued: drive it before.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }

    /// When the background thread has to act; `None` with nothing to do.
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

    /// Leads, or waits for whoever leads, until `done`.
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

    /// Counts one more who wants durability, and tells a leader that waits for
    /// as many.
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

    /// Takes all that is queued and writes it with one write.
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

    /// Uses the writer while others may enqueue. Nobody else is writing.
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

    /// Makes durable all that is queued or written, for everybody.
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
                // After a failure nothing becomes durable, not even what did.
                Ok(()) if state.stopped.is_some() => {}
                Ok(()) => self.publish_durable(state, written, begun),
                Err(error) => self.fail(state, error),
            }
        }
        state.syncing = false;
        self.durable_moved.notify_all();
    }

    /// The writer is free for others while the disk works.
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
            // Who came late finds nobody waiting for the next sync.
            self.work.notify_one();
        }
    }

    /// Stops for ever, and tells everybody.
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

    /// If the sync before had more company, waits a little for the others:
    /// they were woken by it and are likely to be back soon.
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
