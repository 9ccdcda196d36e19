//! A simulated store of log objects, shared by the servers of a simulation. Requests take
//! effect and are answered by events of their own, so both happen in any order; answers
//! get lost, and requests take effect after they have failed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Agenda, SimProcess};
use crate::world::{Created, Done, LogSlot, LogStore};

/// The percentage of requests that go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFaults {
    /// Fail and have no effect.
    pub refused: u64,
    /// Take effect, and then fail.
    pub answer_lost: u64,
    /// Fail, and take effect later.
    pub late: u64,
    /// Fail after a long time; half of them take effect.
    pub timed_out: u64,
    /// Take effect twice, the second time later.
    pub doubled: u64,
}

/// The time after which a request without an answer fails.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A store of log objects. Clones share it.
#[derive(Clone)]
pub struct SimLogObjects {
    agenda: Arc<Agenda>,
    state: Arc<Mutex<State>>,
}

struct State {
    objects: BTreeMap<LogSlot, Bytes>,
    faults: LogFaults,
    delay_max: Duration,
    /// All requests fail without effect.
    is_down: bool,
    creates: u64,
}

impl SimLogObjects {
    pub fn new(agenda: &Arc<Agenda>) -> SimLogObjects {
        let state = State {
            objects: BTreeMap::new(),
            faults: LogFaults::default(),
            delay_max: Duration::from_millis(100),
            is_down: false,
            creates: 0,
        };
        SimLogObjects { agenda: agenda.clone(), state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_faults(&self, faults: LogFaults) {
        self.state.lock().faults = faults;
    }

    /// Sets the longest time that a request takes to arrive, and an answer to come back.
    pub fn set_delay_max(&self, delay: Duration) {
        self.state.lock().delay_max = delay;
    }

    /// Makes all requests fail, or no longer.
    pub fn set_down(&self, is_down: bool) {
        self.state.lock().is_down = is_down;
    }

    pub fn objects(&self) -> BTreeMap<LogSlot, Bytes> {
        self.state.lock().objects.clone()
    }

    /// Returns how many creates were requested.
    pub fn creates(&self) -> u64 {
        self.state.lock().creates
    }

    /// Connects a process. What it has sent arrives even if it crashes.
    pub fn connect(&self, process: &Arc<SimProcess>) -> Arc<SimLogConnection> {
        Arc::new(SimLogConnection { store: self.clone(), process: process.clone() })
    }
}

/// A connection of a process to the store.
pub struct SimLogConnection {
    store: SimLogObjects,
    process: Arc<SimProcess>,
}

/// What a request does to the objects.
type Effect<T> = Arc<dyn Fn(&mut BTreeMap<LogSlot, Bytes>) -> T + Send + Sync>;

impl SimLogConnection {
    fn request<T: Send + 'static>(&self, effect: Effect<T>, done: Done<T>) {
        if self.process.has_crashed() {
            // Nobody waits for an answer.
            return;
        }
        let agenda = self.store.agenda.clone();
        let (faults, delay_max, is_down) = {
            let state = self.store.state.lock();
            (state.faults, state.delay_max, state.is_down)
        };
        let there = agenda.delay(delay_max);
        let later = there + agenda.delay(delay_max * 20);
        let lot = agenda.below(100);
        let LogFaults { refused, answer_lost, late, timed_out, doubled } = faults;
        let below = |rates: &[u64]| lot < rates.iter().sum();
        let unavailable = || Err(io::Error::new(io::ErrorKind::ConnectionReset, "simulated"));
        if is_down || below(&[refused]) {
            self.answer(there, done, unavailable);
        } else if below(&[refused, answer_lost]) {
            self.apply(there, effect, move |_| ());
            self.answer(there * 2, done, unavailable);
        } else if below(&[refused, answer_lost, late]) {
            self.answer(there, done, unavailable);
            self.apply(later, effect, |_| ());
        } else if below(&[refused, answer_lost, late, timed_out]) {
            if lot.is_multiple_of(2) {
                self.apply(later, effect, |_| ());
            }
            self.answer(TIMEOUT, done, unavailable);
        } else {
            if below(&[refused, answer_lost, late, timed_out, doubled]) {
                self.apply(later, effect.clone(), |_| ());
            }
            let (back, process) = (agenda.delay(delay_max), self.process.clone());
            self.apply(there, effect, move |value| process.after(back, move || done(Ok(value))));
        }
    }

    /// Lets a request take effect.
    fn apply<T: 'static>(
        &self,
        after: Duration,
        effect: Effect<T>,
        then: impl FnOnce(T) + Send + 'static,
    ) {
        let state = self.store.state.clone();
        self.store.agenda.after(after, move || {
            let value = effect(&mut state.lock().objects);
            then(value);
        });
    }

    fn answer<T: Send + 'static>(
        &self,
        after: Duration,
        done: Done<T>,
        answer: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) {
        self.process.after(after, move || done(answer()));
    }
}

impl LogStore for SimLogConnection {
    fn create(&self, at: LogSlot, bytes: Bytes, done: Done<Created>) {
        self.store.state.lock().creates += 1;
        let effect = move |objects: &mut BTreeMap<LogSlot, Bytes>| {
            if objects.contains_key(&at) {
                return Created::Exists;
            }
            objects.insert(at, bytes.clone());
            Created::New
        };
        self.request(Arc::new(effect), done);
    }

    fn read(&self, at: LogSlot, done: Done<Option<Bytes>>) {
        let effect = move |objects: &mut BTreeMap<LogSlot, Bytes>| objects.get(&at).cloned();
        self.request(Arc::new(effect), done);
    }

    fn delete(&self, at: LogSlot, done: Done<()>) {
        let effect = move |objects: &mut BTreeMap<LogSlot, Bytes>| drop(objects.remove(&at));
        self.request(Arc::new(effect), done);
    }

    fn list(&self, epoch: u64, done: Done<Vec<u64>>) {
        let effect = move |objects: &mut BTreeMap<LogSlot, Bytes>| {
            let all = LogSlot { epoch, slot: 0 }..=LogSlot { epoch, slot: u64::MAX };
            objects.range(all).map(|(at, _)| at.slot).collect::<Vec<u64>>()
        };
        self.request(Arc::new(effect), done);
    }

    fn address(&self) -> String {
        "sim://log".to_string()
    }
}
