//! Claims: exclusive rights to background work. A flush claims the memory of
//! one group of a table, a compaction claims one chain, a split or join one tablet.

use std::collections::{BTreeMap, BTreeSet};

use super::signal::Signal;
use crate::cell::commit::TableId;
use crate::config::TabletId;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};

/// A unit of background work, done by one thread at a time. A thread that needs
/// several claims takes them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Split {
        table: TableId,
        tablet: TabletId,
    },
    /// The join of a tablet with the one before it.
    Join {
        table: TableId,
        tablet: TabletId,
    },
    Compact {
        table: TableId,
        tablet: TabletId,
        group: usize,
    },
    Flush {
        table: TableId,
        group: usize,
    },
    /// All memory at one index, in a store without its own log.
    FlushAll,
}

impl Work {
    pub fn is_flush(&self) -> bool {
        matches!(self, Work::Flush { .. } | Work::FlushAll)
    }
}

#[derive(Default)]
pub struct Claims {
    state: Mutex<HeldClaims>,
    released: Condvar,
    flushes: AtomicUsize,
    /// Raised when a claim is released, because there may be new work.
    pub urgent: Signal,
    pub background: Signal,
}

#[derive(Default)]
struct HeldClaims {
    held: BTreeSet<Work>,
    /// Number of threads waiting for each claim; workers leave such claims
    /// alone.
    awaited: BTreeMap<Work, usize>,
}

impl Claims {
    /// Takes a claim that no thread holds or waits for.
    pub fn try_take(&self, work: Work) -> Option<Claim<'_>> {
        let mut state = self.state.lock();
        let free = !state.awaited.contains_key(&work) && state.held.insert(work);
        free.then(|| self.claimed(work))
    }

    /// Takes a claim, waiting for it if necessary.
    pub fn take(&self, work: Work) -> Claim<'_> {
        let mut state = self.state.lock();
        if !state.held.insert(work) {
            *state.awaited.entry(work).or_default() += 1;
            while !state.held.insert(work) {
                self.released.wait(&mut state);
            }
            let awaited = state.awaited.get_mut(&work).expect("counted above");
            *awaited -= 1;
            if *awaited == 0 {
                state.awaited.remove(&work);
            }
        }
        self.claimed(work)
    }

    fn claimed(&self, work: Work) -> Claim<'_> {
        self.flushes.fetch_add(work.is_flush().into(), Ordering::Relaxed);
        Claim { claims: self, work }
    }

    pub fn is_held(&self, work: Work) -> bool {
        self.state.lock().held.contains(&work)
    }

    /// Whether any memory is being flushed.
    pub fn is_flushing(&self) -> bool {
        self.flushes.load(Ordering::Relaxed) > 0
    }

    /// Wakes idle workers.
    pub fn raise(&self) {
        self.urgent.raise();
        self.background.raise();
    }
}

/// The right to do a unit of work, released on drop.
pub struct Claim<'a> {
    claims: &'a Claims,
    pub work: Work,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.state.lock().held.remove(&self.work);
        self.claims.flushes.fetch_sub(self.work.is_flush().into(), Ordering::Relaxed);
        self.claims.released.notify_all();
        self.claims.raise();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_released_claim_goes_to_its_waiter() {
        let claims = Claims::default();
        let work = Work::Flush { table: TableId(1), group: 0 };
        let held = claims.try_take(work).unwrap();
        assert!(claims.try_take(work).is_none() && claims.is_flushing());
        assert!(claims.try_take(Work::Flush { table: TableId(1), group: 1 }).is_some());
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(claims.take(work)));
            while claims.state.lock().awaited.is_empty() {
                thread::yield_now();
            }
            drop(held);
            waits.join().unwrap();
        });
        assert!(claims.try_take(work).is_some());
        assert!(!claims.is_flushing());
    }
}
