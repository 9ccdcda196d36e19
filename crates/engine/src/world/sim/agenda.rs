//! Virtual time: everything that happens in a simulation is an event with a time, and
//! one thread runs the events in order. The same seed gives the same run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::world::clock::Clock;
use crate::world::random::{Random, SeededRandom};

/// Wall time at the start, in microseconds since 1970.
const STARTED_MICROS: i64 = 1_700_000_000_000_000;

/// The clock, the randomness and the coming events of a simulation.
pub struct Agenda {
    random: SeededRandom,
    state: Mutex<State>,
}

type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    now: Duration,
    /// Number of events so far.
    events: u64,
    /// By time, then in the order in which they were added.
    coming: BTreeMap<(Duration, u64), Event>,
    /// A digest of what has happened, to compare runs.
    trace: u64,
}

impl Agenda {
    pub fn new(seed: u64) -> Arc<Agenda> {
        Arc::new(Agenda { random: SeededRandom::new(seed), state: Mutex::default() })
    }

    /// Adds an event that happens after a delay.
    pub fn after(&self, delay: Duration, event: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.events += 1;
        let key = (state.now + delay, state.events);
        state.coming.insert(key, Box::new(event));
    }

    /// Runs the next event. Returns whether there was one.
    pub fn run_next(&self) -> bool {
        let mut state = self.state.lock();
        let Some(((at, number), event)) = state.coming.pop_first() else { return false };
        state.now = at;
        let (micros, trace) = (at.as_micros() as u64, state.trace);
        state.trace = (trace ^ micros ^ number.rotate_left(32)).wrapping_mul(0x100_0000_01b3);
        drop(state);
        event();
        true
    }

    /// Runs events for some time, until `done` returns true or no more are coming.
    /// Returns whether `done` did.
    pub fn run_for(&self, time: Duration, mut done: impl FnMut() -> bool) -> bool {
        let end = self.elapsed() + time;
        while !done() {
            let next = self.state.lock().coming.first_key_value().map(|((at, _), _)| *at);
            if next.is_none_or(|at| at > end) {
                let mut state = self.state.lock();
                state.now = state.now.max(end);
                return false;
            }
            self.run_next();
        }
        true
    }

    /// While the scope lives, a wait of this thread inside an event runs the coming events.
    #[cfg(not(feature = "shuttle"))]
    pub fn runs_while_waiting(self: &Arc<Agenda>) -> super::IdleScope {
        let agenda = self.clone();
        super::IdleScope::enter(move || {
            assert!(agenda.run_next(), "a thread waits for something that never happens");
        })
    }

    /// Returns a number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    /// Returns true in `percent` of the cases.
    pub fn chance(&self, percent: u64) -> bool {
        percent > 0 && self.below(100) < percent
    }

    /// Returns a random duration: most are short, some up to `max`.
    pub fn delay(&self, max: Duration) -> Duration {
        let bound = if self.chance(80) { max / 10 } else { max };
        Duration::from_micros(1 + self.below(bound.as_micros() as u64))
    }

    /// Returns a digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }
}

impl Clock for Agenda {
    fn now_micros(&self) -> i64 {
        STARTED_MICROS + i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX / 2)
    }

    fn elapsed(&self) -> Duration {
        self.state.lock().now
    }
}

impl Random for Agenda {
    fn next_u64(&self) -> u64 {
        self.random.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_the_order_of_their_times_and_then_of_their_arrival() {
        let agenda = Agenda::new(1);
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (delay, number) in [(30, 1), (10, 2), (30, 3), (20, 4)] {
            let seen = seen.clone();
            agenda.after(Duration::from_millis(delay), move || seen.lock().push(number));
        }
        assert!(!agenda.run_for(Duration::from_millis(25), || false));
        assert_eq!((agenda.elapsed(), &**seen.lock()), (Duration::from_millis(25), &[2, 4][..]));
        while agenda.run_next() {}
        assert_eq!(*seen.lock(), [2, 4, 1, 3]);
        assert_eq!(agenda.elapsed(), Duration::from_millis(30));
    }
}
