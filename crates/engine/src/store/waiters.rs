//! Queue of commits waiting for admission, and of requests waiting for a tablet: what
//! each one waits for, which one to wake after a change, and the timer for delays and
//! deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Instant;

use crate::config::TabletId;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};

/// What a commit waits for, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Shorter chains of its tables.
    Chains,
    /// A shorter log queue.
    Queue,
    /// Memory.
    Memory,
    /// Space in the log.
    Space,
    /// A tablet that is being loaded. Requests, not commits, wait for it.
    Load,
}

const STAGES: usize = Stage::Load as usize + 1;

#[derive(Default)]
pub struct Waiters {
    state: Mutex<WaiterQueue>,
    /// The timer's next deadline changed.
    changed: Condvar,
    /// Number of commits waiting for the log queue.
    for_queue: AtomicUsize,
    /// Number of events that may have changed a chain.
    events: AtomicU64,
}

#[derive(Default)]
struct WaiterQueue {
    /// In order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    /// Number of waiters per stage.
    counts: [usize; STAGES],
    last_ticket: u64,
    /// Number of waiters per tablet that is being loaded.
    per_tablet: BTreeMap<TabletId, usize>,
    timers: BTreeSet<(Instant, u64)>,
    ended: bool,
}

struct Waiter {
    stage: Stage,
    waker: Option<Waker>,
    timer: Option<Instant>,
    /// The tablet that it waits for, in the stage `Load`.
    tablet: Option<TabletId>,
}

impl Waiters {
    /// Adds a commit and returns its ticket; `None` if `waiters_max` are waiting
    /// already.
    pub fn enter(&self, waiters_max: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.waiting.len() - state.counts[Stage::Load as usize] >= waiters_max {
            return None;
        }
        Some(state.add(Stage::Chains, None))
    }

    /// Adds a request for a tablet that is being loaded and returns its ticket; `None`
    /// if `waiters_max` wait for that tablet already.
    pub fn enter_load(&self, tablet: TabletId, waiters_max: usize) -> Option<u64> {
        let mut state = self.state.lock();
        let waiting = state.per_tablet.entry(tablet).or_default();
        if *waiting >= waiters_max {
            return None;
        }
        *waiting += 1;
        Some(state.add(Stage::Load, Some(tablet)))
    }

    /// Registers a waiter to be woken when its stage may be over, or at
    /// `timer`. Must be called before the waiter checks whether the stage is
    /// over.
    pub fn watch(&self, ticket: u64, stage: Stage, waker: &Waker, timer: Option<Instant>) {
        let mut state = self.state.lock();
        let WaiterQueue { waiting, counts, timers, .. } = &mut *state;
        let waiter = waiting.get_mut(&ticket).expect("a waiter enters before it waits");
        if waiter.stage != stage {
            self.count(waiter.stage, stage);
            counts[waiter.stage as usize] -= 1;
            counts[stage as usize] += 1;
            waiter.stage = stage;
        }
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            None => waiter.waker = Some(waker.clone()),
        }
        if waiter.timer != timer {
            if let Some(old) = waiter.timer {
                timers.remove(&(old, ticket));
            }
            waiter.timer = timer;
            if let Some(timer) = timer {
                timers.insert((timer, ticket));
                if timers.first() == Some(&(timer, ticket)) {
                    self.changed.notify_one();
                }
            }
        }
    }

    /// Removes a waiter and wakes the next one in its stage.
    pub fn leave(&self, ticket: u64) {
        let stage = {
            let mut state = self.state.lock();
            let waiter = state.waiting.remove(&ticket).expect("a waiter leaves once");
            if let Some(timer) = waiter.timer {
                state.timers.remove(&(timer, ticket));
            }
            if let Some(tablet) = waiter.tablet {
                state.leave_tablet(tablet);
            }
            self.count(waiter.stage, Stage::Chains);
            state.counts[waiter.stage as usize] -= 1;
            waiter.stage
        };
        self.wake_first(stage);
    }

    fn count(&self, from: Stage, to: Stage) {
        if from == Stage::Queue {
            self.for_queue.fetch_sub(1, Ordering::AcqRel);
        }
        if to == Stage::Queue {
            self.for_queue.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether commits are waiting for the log queue; others must not overtake
    /// them.
    pub fn any_for_queue(&self) -> bool {
        self.for_queue.load(Ordering::Acquire) > 0
    }

    /// Wakes the first waiter in a stage. When it moves on or gives up, it
    /// wakes the next.
    pub fn wake_first(&self, stage: Stage) {
        let waker = {
            let state = self.state.lock();
            if state.counts[stage as usize] == 0 {
                return;
            }
            let mut waiting = state.waiting.values();
            waiting.find(|waiter| waiter.stage == stage).and_then(|waiter| waiter.waker.clone())
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Wakes all waiters in a stage.
    pub fn wake(&self, stage: Stage) {
        if stage == Stage::Chains {
            self.events.fetch_add(1, Ordering::AcqRel);
        }
        if self.state.lock().counts[stage as usize] > 0 {
            self.wake_if(|waiter| waiter.stage == stage);
        }
    }

    /// Wakes all waiters, because the store failed or is closing.
    pub fn wake_all(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
        self.wake_if(|_| true);
    }

    /// Returns the number of the last chain event. What one waiter finds after
    /// an event holds for all of them.
    pub fn event(&self) -> u64 {
        self.events.load(Ordering::Acquire)
    }

    fn wake_if(&self, chosen: impl Fn(&Waiter) -> bool) {
        let wakers: Vec<Waker> = {
            let state = self.state.lock();
            let waiting = state.waiting.values().filter(|waiter| chosen(waiter));
            waiting.filter_map(|waiter| waiter.waker.clone()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The body of the timer thread. Deadlines use real time even if the
    /// world's clock is simulated, because threads run in real time.
    pub fn run_timer(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let Some(&(due, ticket)) = state.timers.first() else {
                self.changed.wait(&mut state);
                continue;
            };
            let now = Instant::now();
            if now < due {
                self.changed.wait_for(&mut state, due - now);
                continue;
            }
            state.timers.remove(&(due, ticket));
            let waiter = state.waiting.get_mut(&ticket).expect("timers are removed with waiters");
            waiter.timer = None;
            if let Some(waker) = &waiter.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Stops the timer thread.
    pub fn end_timer(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

impl WaiterQueue {
    fn add(&mut self, stage: Stage, tablet: Option<TabletId>) -> u64 {
        self.last_ticket += 1;
        self.waiting.insert(self.last_ticket, Waiter { stage, waker: None, timer: None, tablet });
        self.counts[stage as usize] += 1;
        self.last_ticket
    }

    fn leave_tablet(&mut self, tablet: TabletId) {
        let waiting = self.per_tablet.get_mut(&tablet).expect("counted when it entered");
        *waiting -= 1;
        if *waiting == 0 {
            self.per_tablet.remove(&tablet);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::sync::Park;

    #[test]
    fn a_timer_wakes_its_waiter_and_stops_on_request() {
        let waiters = Arc::new(Waiters::default());
        let (timer, park) = (waiters.clone(), Park::new());
        let thread = thread::spawn(move || timer.run_timer());
        let ticket = waiters.enter(1).unwrap();
        assert!(waiters.enter(1).is_none(), "one is waiting already");
        let due = Instant::now() + Duration::from_millis(5);
        waiters.watch(ticket, Stage::Memory, &park.waker(), Some(due));
        park.wait(Duration::from_secs(60));
        assert!(Instant::now() >= due);
        waiters.leave(ticket);
        assert!(waiters.enter(1).is_some());
        waiters.end_timer();
        thread.join().unwrap();
    }

    #[test]
    fn scale_7_6_each_tablet_has_a_limited_number_of_waiters_apart_from_commits() {
        let waiters = Waiters::default();
        let tablets = [1, 2].map(|number| TabletId { incarnation: 1, number });
        let first = waiters.enter_load(tablets[0], 1).unwrap();
        assert!(waiters.enter_load(tablets[0], 1).is_none());
        let second = waiters.enter_load(tablets[1], 1).unwrap();
        let commit = waiters.enter(1).unwrap();
        assert!(waiters.enter(1).is_none(), "one commit waits already");
        waiters.leave(first);
        let again = waiters.enter_load(tablets[0], 1).unwrap();
        for ticket in [second, commit, again] {
            waiters.leave(ticket);
        }
        assert!(waiters.state.lock().per_tablet.is_empty());
    }

    #[test]
    fn a_waiter_that_leaves_passes_its_turn_on() {
        let (waiters, first, second) = (Waiters::default(), Park::new(), Park::new());
        let tickets = [&first, &second].map(|park| {
            let ticket = waiters.enter(2).unwrap();
            waiters.watch(ticket, Stage::Queue, &park.waker(), None);
            ticket
        });
        assert!(waiters.any_for_queue());
        waiters.wake_first(Stage::Queue);
        first.wait(Duration::from_secs(60));
        waiters.leave(tickets[0]);
        second.wait(Duration::from_secs(60));
        waiters.leave(tickets[1]);
        assert!(!waiters.any_for_queue());
    }
}
