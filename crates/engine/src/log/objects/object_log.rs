//! The log of a live server, shared by its threads. Entries are queued; the first caller
//! that waits for one starts a group, and groups are sent as objects without blocking
//! anybody. Answers arrive on threads of the store, which then continue with the queue.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::object::LogObject;
use super::slots::{Next, Slots};
use crate::error::{Error, Result};
use crate::log::callbacks::{Callback, Callbacks};
use crate::log::group::{Listener, LogEvent};
use crate::log::{LogEntry, record};
use crate::rules::Rules;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, assert_io_allowed};
use crate::world::{Clock, Created, LogSlot, LogStore, Random};

/// Delay suggested to callers while the store does not accept objects.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct ObjectLogOptions {
    /// Number of slots that may be under way beyond the durable prefix.
    pub window: usize,
    /// A group takes entries up to this size, and at least one.
    pub group_bytes_max: u64,
    /// How long an entry may stay queued if nobody waits for it.
    pub linger: Duration,
    pub rules: Rules,
}

impl Default for ObjectLogOptions {
    fn default() -> Self {
        ObjectLogOptions {
            window: 4,
            group_bytes_max: 4 << 20,
            linger: Duration::from_millis(5),
            rules: Rules::CORRECTED,
        }
    }
}

/// A log of objects that many threads share. Dropping it stops it; what was sent may
/// still arrive.
pub struct ObjectLog {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: u64,
    store: Arc<dyn LogStore>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    options: ObjectLogOptions,
    state: Mutex<State>,
    /// Everything up to this index is durable.
    durable: AtomicU64,
    queued_bytes: AtomicU64,
    /// Whether `State::stopped` is set; readable without the lock.
    failed: AtomicBool,
    durable_moved: Condvar,
    /// Wakes the background thread.
    work: Condvar,
    callbacks: Callbacks,
    listener: OnceLock<Listener>,
}

struct State {
    /// Entries without a slot, in index order.
    queue: VecDeque<LogEntry>,
    /// The last index: that of the last entry enqueued, or a higher one at which the
    /// numbering continues.
    last: u64,
    /// Index of the last entry enqueued.
    last_entry: u64,
    /// Everything up to this index has a slot.
    taken: u64,
    /// Somebody waits for this index.
    wanted: u64,
    /// When the oldest queued entry was enqueued.
    pending_since: Option<Duration>,
    slots: Slots,
    /// The objects that recovery may need, in order.
    kept: VecDeque<Kept>,
    /// Slots whose objects could not be deleted yet.
    undeleted: Vec<u64>,
    stopping: bool,
    stopped: Option<Arc<Error>>,
}

/// An object that was assigned and is not released.
struct Kept {
    slot: u64,
    last: u64,
    bytes: u64,
}

/// A group of entries with its slot, before it is encoded.
struct Group {
    at: LogSlot,
    nonce: u128,
    entries: Vec<LogEntry>,
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    /// Returns up to which index everything is durable, if the entries up to `entry` are.
    fn reached(&self, entry: u64) -> u64 {
        if entry >= self.last_entry { entry.max(self.last) } else { entry }
    }
}

impl ObjectLog {
    /// Starts the log of a new epoch, which no other server uses. Entries up to
    /// `last_index` are not part of it.
    pub fn start(
        epoch: u64,
        last_index: u64,
        store: Arc<dyn LogStore>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: ObjectLogOptions,
    ) -> ObjectLog {
        let state = State {
            queue: VecDeque::new(),
            last: last_index,
            last_entry: last_index,
            taken: last_index,
            wanted: last_index,
            pending_since: None,
            slots: Slots::new(epoch, options.window, last_index, options.rules),
            kept: VecDeque::new(),
            undeleted: Vec::new(),
            stopping: false,
            stopped: None,
        };
        let shared = Shared {
            epoch,
            store,
            clock,
            random,
            options,
            state: Mutex::new(state),
            durable: AtomicU64::new(last_index),
            queued_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            durable_moved: Condvar::new(),
            work: Condvar::new(),
            callbacks: Callbacks::default(),
            listener: OnceLock::new(),
        };
        ObjectLog { shared: Arc::new(shared) }
    }

    pub fn rules(&self) -> Rules {
        self.shared.options.rules
    }

    /// Sets the listener. Panics if there is one already.
    pub fn set_listener(&self, listener: Listener) {
        assert!(self.shared.listener.set(listener).is_ok(), "a log has one listener");
    }

    /// Queues an entry. Indices must increase: the caller holds the lock that assigned
    /// this one.
    pub fn enqueue(&self, entry: LogEntry) -> Result<()> {
        entry.check()?;
        let shared = &self.shared;
        let mut state = shared.state.lock();
        state.check()?;
        assert!(entry.index > state.last, "index {} after {}", entry.index, state.last);
        (state.last, state.last_entry) = (entry.index, entry.index);
        shared.queued_bytes.fetch_add(entry_bytes(&entry), Ordering::Relaxed);
        state.queue.push_back(entry);
        if state.pending_since.is_none() {
            state.pending_since = Some(shared.clock.elapsed());
            shared.work.notify_one();
        }
        Ok(())
    }

    /// Fails if new entries should be refused: the log has stopped, or the store has not
    /// accepted an object for some time. Entries that have a slot are sent until it does.
    pub fn check_accepts(&self) -> Result<()> {
        let state = self.shared.state.lock();
        state.check()?;
        if state.slots.is_in_doubt() {
            let what = "the store of the log does not accept writes";
            return Err(Error::Overloaded { what, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    /// Continues the numbering after `index`, if that is above the last one. Nothing is
    /// written: `index` is durable when all entries before it are.
    pub fn raise(&self, index: u64) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if index <= state.last {
            return;
        }
        state.last = index;
        if state.queue.is_empty() {
            state.taken = index;
        }
        if shared.durable.load(Ordering::Acquire) >= state.last_entry {
            shared.publish(index);
        }
        drop(state);
        shared.callbacks.fire();
    }

    /// Sends what is queued, as far as slots are free.
    pub fn send_queued(&self) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        state.wanted = state.last;
        let groups = shared.begin(&mut state);
        drop(state);
        shared.send_groups(groups);
    }

    /// Waits until everything that was enqueued is durable, blocking this thread.
    pub fn drain(&self) -> Result<()> {
        let last = self.shared.state.lock().last;
        self.wait_durable(last)
    }

    /// Number of bytes enqueued but not yet sent.
    pub fn queued_bytes(&self) -> u64 {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Returns the error if the log has stopped.
    pub fn failed(&self) -> Option<Error> {
        let failed = self.shared.failed.load(Ordering::Acquire);
        if failed { self.shared.state.lock().check().err() } else { None }
    }

    /// Returns the index up to which everything is durable.
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Whether `index` has a slot: it becomes durable, or the log stops, without anybody
    /// else's help.
    pub fn is_under_way(&self, index: u64) -> bool {
        index <= self.shared.state.lock().taken
    }

    /// Returns the slot that the next group gets, or a later one: entries enqueued from
    /// now on are in no earlier slot.
    pub fn next_slot(&self) -> u64 {
        self.shared.state.lock().slots.next()
    }

    /// Calls `callback` once `index` is durable, or can no longer become durable for this
    /// server. Callbacks run in index order, on a thread of the store or on this one.
    pub fn on_durable(&self, index: u64, callback: Callback) {
        let shared = &self.shared;
        let groups = {
            let mut state = shared.state.lock();
            assert!(index <= state.last, "index {index} was never enqueued");
            shared.callbacks.add(index, callback);
            if index <= self.durable() {
                shared.callbacks.reached(self.durable());
            } else if let Some(cause) = &state.stopped {
                shared.callbacks.failed(cause);
            }
            state.wanted = state.wanted.max(index);
            shared.begin(&mut state)
        };
        shared.send_groups(groups);
        shared.callbacks.fire();
    }

    /// Waits until everything up to `index` is durable, blocking this thread.
    pub fn wait_durable(&self, index: u64) -> Result<()> {
        if index <= self.durable() {
            return Ok(());
        }
        assert_io_allowed();
        let shared = &self.shared;
        let mut state = shared.state.lock();
        assert!(index <= state.last, "index {index} was never enqueued");
        state.wanted = state.wanted.max(index);
        let groups = shared.begin(&mut state);
        drop(state);
        shared.send_groups(groups);
        let mut state = shared.state.lock();
        while index > self.durable() {
            state.check()?;
            shared.durable_moved.wait(&mut state);
        }
        Ok(())
    }

    /// Sends what is due: puts in doubt again, and entries that were queued for long.
    /// Returns when to call it next; `None` if nothing is pending.
    pub fn step(&self) -> Option<Duration> {
        self.shared.step();
        self.shared.next_due(&self.shared.state.lock())
    }

    /// The body of the background thread: calls `step` when something is due. Returns
    /// after `stop` or a failure.
    pub fn run(&self) {
        let shared = &self.shared;
        loop {
            shared.step();
            let mut state = shared.state.lock();
            if state.stopping || state.stopped.is_some() {
                return;
            }
            match shared.next_due(&state) {
                None => shared.work.wait(&mut state),
                Some(due) => {
                    let wait = due.saturating_sub(shared.clock.elapsed());
                    shared.work.wait_for(&mut state, wait);
                }
            }
        }
    }

    /// Ends `run`.
    pub fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_all();
    }

    /// Stops the log for ever: nothing becomes durable for this server any more, and
    /// nothing is sent. For a server whose lease has lapsed.
    pub fn halt(&self, cause: Error) {
        self.shared.fail(&mut self.shared.state.lock(), cause);
        self.shared.callbacks.fire();
    }

    /// Returns the lowest slot that recovery needs if it needs entries from `index` on:
    /// at most the first slot that is not known to be durable.
    pub fn floor_for(&self, index: u64) -> u64 {
        let state = self.shared.state.lock();
        let needed = state.kept.iter().find(|kept| kept.last >= index);
        let prefix = state.slots.prefix();
        needed.map_or(prefix, |kept| kept.slot.min(prefix))
    }

    /// Returns the size of the objects with entries at or after `index`.
    pub fn pinned_bytes(&self, index: u64) -> u64 {
        let state = self.shared.state.lock();
        let pinned = state.kept.iter().filter(|kept| kept.last >= index);
        pinned.map(|kept| kept.bytes).sum()
    }

    /// Deletes the objects before `floor`. The caller has published that floor: recovery
    /// starts there, and never below it. What cannot be deleted is tried again at the next
    /// call.
    pub fn release_below(&self, floor: u64) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        assert!(floor <= state.slots.prefix(), "slot {floor} is not durable");
        let mut gone = std::mem::take(&mut state.undeleted);
        while let Some(kept) = state.kept.pop_front_if(|kept| kept.slot < floor) {
            gone.push(kept.slot);
        }
        drop(state);
        for slot in gone {
            let weak = Arc::downgrade(shared);
            let at = LogSlot { epoch: shared.epoch, slot };
            let done = move |outcome: io::Result<()>| {
                if outcome.is_err()
                    && let Some(shared) = weak.upgrade()
                {
                    shared.state.lock().undeleted.push(slot);
                }
            };
            shared.store.delete(at, Box::new(done));
        }
    }
}

impl Drop for ObjectLog {
    fn drop(&mut self) {
        self.halt(Error::Closed);
        self.stop();
    }
}

impl Shared {
    fn step(self: &Arc<Self>) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        if state.stopped.is_some() {
            return;
        }
        let lingered = |since: Duration| since + self.options.linger <= now;
        if state.pending_since.is_some_and(lingered) {
            state.wanted = state.last;
        }
        let groups = self.begin(&mut state);
        let again = state.slots.take_due(now);
        drop(state);
        self.send_groups(groups);
        for (at, bytes) in again {
            self.send(at, bytes);
        }
    }

    /// Returns when something has to be sent that nobody waits for.
    fn next_due(&self, state: &State) -> Option<Duration> {
        if state.stopped.is_some() {
            return None;
        }
        // A queue behind a full window moves on with the next answer.
        let queued = state.pending_since.filter(|_| !state.slots.is_full());
        let linger_ends = queued.map(|since| since + self.options.linger);
        state.slots.next_due().into_iter().chain(linger_ends).min()
    }

    /// Assigns slots to queued entries that somebody waits for.
    fn begin(&self, state: &mut State) -> Vec<Group> {
        let mut groups = Vec::new();
        while state.wanted > state.taken
            && !state.queue.is_empty()
            && !state.slots.is_full()
            && state.stopped.is_none()
        {
            let (mut entries, mut bytes) = (Vec::new(), 0);
            while let Some(entry) = state.queue.pop_front_if(|entry| {
                bytes == 0 || bytes + entry_bytes(entry) <= self.options.group_bytes_max
            }) {
                bytes += entry_bytes(&entry);
                entries.push(entry);
            }
            let last = entries.last().expect("the queue is not empty").index;
            let nonce =
                u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
            let at = state.slots.assign(nonce, last);
            state.taken = last;
            state.kept.push_back(Kept { slot: at.slot, last, bytes });
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            groups.push(Group { at, nonce, entries });
        }
        if state.queue.is_empty() {
            state.pending_since = None;
            state.taken = state.last;
        }
        groups
    }

    /// Encodes and sends groups that were just assigned. The caller holds no lock.
    fn send_groups(self: &Arc<Self>, groups: Vec<Group>) {
        if groups.is_empty() {
            return;
        }
        for Group { at, nonce, entries } in groups {
            let bytes = LogObject::data(at, nonce, &entries);
            self.state.lock().slots.sent(at.slot, bytes.clone(), self.clock.elapsed());
            self.send(at, bytes);
        }
        self.work.notify_one();
        self.notify_listener(LogEvent::Progress);
    }

    fn send(self: &Arc<Self>, at: LogSlot, bytes: Bytes) {
        let weak = Arc::downgrade(self);
        let done = move |answer: io::Result<Created>| {
            if let Some(shared) = weak.upgrade() {
                shared.note(at, |slots, now| slots.answered(at.slot, answer, now));
            }
        };
        self.store.create(at, bytes, Box::new(done));
    }

    fn read_back(self: &Arc<Self>, at: LogSlot) {
        let weak = Arc::downgrade(self);
        let done = move |found: io::Result<Option<Bytes>>| {
            if let Some(shared) = weak.upgrade() {
                shared.note(at, |slots, now| slots.read_back(at.slot, found, now));
            }
        };
        self.store.read(at, Box::new(done));
    }

    /// Notes the answer to a request, and does what follows from it.
    fn note(self: &Arc<Self>, at: LogSlot, note: impl FnOnce(&mut Slots, Duration) -> Next) {
        let mut state = self.state.lock();
        if state.stopped.is_some() {
            return;
        }
        let next = note(&mut state.slots, self.clock.elapsed());
        let (mut groups, mut reads) = (Vec::new(), false);
        match next {
            Next::Nothing => {}
            Next::Durable(index) => {
                self.publish(state.reached(index));
                groups = self.begin(&mut state);
            }
            Next::ReadBack => reads = true,
            Next::Halt(cause) => self.fail(&mut state, cause),
        }
        drop(state);
        self.send_groups(groups);
        if reads {
            self.read_back(at);
        }
        // A failed put is due earlier than the background thread knows.
        self.work.notify_one();
        self.callbacks.fire();
    }

    fn publish(&self, index: u64) {
        self.durable.store(index, Ordering::Release);
        self.callbacks.reached(index);
        self.durable_moved.notify_all();
    }

    /// Stops the log and notifies all waiters.
    fn fail(&self, state: &mut State, cause: Error) {
        if state.stopped.is_some() {
            return;
        }
        let cause = Arc::new(cause);
        self.callbacks.failed(&cause);
        state.stopped = Some(cause);
        state.queue = VecDeque::new();
        self.failed.store(true, Ordering::Release);
        self.durable_moved.notify_all();
        self.work.notify_all();
        self.notify_listener(LogEvent::Failed);
    }

    fn notify_listener(&self, event: LogEvent) {
        if let Some(listener) = self.listener.get() {
            listener(event);
        }
    }
}

fn entry_bytes(entry: &LogEntry) -> u64 {
    record::record_bytes(entry.payload.len()) as u64
}
