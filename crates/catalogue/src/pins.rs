//! Snapshots held by readers, so that several requests, or the messages of one, see
//! the same records. The engine releases a snapshot that is not used for a while;
//! using it here renews it: during a call as long as the call makes progress,
//! between calls up to a maximum age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::world::Clock;
use stele_engine::{Snapshot, Txn, View};

use crate::error::{Error, Result};
use crate::limits::{PINS_MAX, SNAPSHOT_AGE_MAX};

/// A snapshot that is being read. Using it keeps it readable.
#[derive(Clone)]
pub struct ReadSnapshot {
    snapshot: Arc<Snapshot>,
    clock: Arc<dyn Clock>,
    created: Duration,
}

impl ReadSnapshot {
    pub fn new(snapshot: Arc<Snapshot>, clock: &Arc<dyn Clock>) -> ReadSnapshot {
        ReadSnapshot { snapshot, clock: clock.clone(), created: clock.elapsed() }
    }

    pub fn txn(&self) -> Txn {
        self.snapshot.txn()
    }

    pub fn view(&self) -> View {
        View::At(self.snapshot.clone())
    }

    /// Renews the snapshot between calls, unless it is too old. Fails if it has been
    /// released.
    pub fn renew_between_calls(&self) -> Result<()> {
        let young = self.clock.elapsed() < self.created + SNAPSHOT_AGE_MAX;
        let held = if young { self.snapshot.renew() } else { self.snapshot.check() };
        held.map_err(|_| Error::Unpinned(self.txn()))
    }

    /// Renews the snapshot during a call that makes progress, whatever its age.
    pub fn renew(&self) -> Result<()> {
        self.snapshot.renew().map_err(|_| Error::Unpinned(self.txn()))
    }

    fn is_held(&self) -> bool {
        self.snapshot.check().is_ok()
    }
}

/// Snapshots that are held between requests, by txn.
#[derive(Default)]
pub struct Pins {
    held: Mutex<BTreeMap<Txn, Pin>>,
}

struct Pin {
    snapshot: ReadSnapshot,
    /// Number of pins that have not been released.
    holders: u32,
}

impl Pins {
    /// Pins a snapshot until it is released or no longer used.
    pub fn pin(&self, snapshot: ReadSnapshot) -> Result<Txn> {
        let mut held = self.held.lock();
        let txn = snapshot.txn();
        if let Some(pin) = held.get_mut(&txn) {
            pin.holders = pin.holders.saturating_add(1);
            // Keep the younger of two at the same txn, which lasts longer.
            pin.snapshot = snapshot;
            return Ok(txn);
        }
        if held.len() >= PINS_MAX {
            held.retain(|_, pin| pin.snapshot.is_held());
        }
        if held.len() >= PINS_MAX {
            let what = format!(
                "too many pinned txns, the limit is {PINS_MAX}: unpin some, or wait until they expire"
            );
            return Err(Error::Exhausted(what));
        }
        held.insert(txn, Pin { snapshot, holders: 1 });
        Ok(txn)
    }

    /// Releases one pin of a txn. Returns whether the txn was pinned.
    pub fn release(&self, txn: Txn) -> bool {
        let mut held = self.held.lock();
        let Some(pin) = held.get_mut(&txn) else { return false };
        let was_held = pin.snapshot.is_held();
        pin.holders -= 1;
        if pin.holders == 0 || !was_held {
            held.remove(&txn);
        }
        was_held
    }

    /// Returns the pinned snapshot with a txn.
    pub fn get(&self, txn: u64) -> Result<ReadSnapshot> {
        let txn = Txn::from_raw(txn).ok_or_else(|| Error::invalid(format!("invalid txn {txn}")))?;
        let mut held = self.held.lock();
        let snapshot =
            held.get(&txn).map(|pin| pin.snapshot.clone()).ok_or(Error::Unpinned(txn))?;
        if let Err(error) = snapshot.renew_between_calls() {
            held.remove(&txn);
            return Err(error);
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::world::{ManualClock, World};
    use stele_engine::{Options, Store};

    use super::*;

    /// Returns a store with a manual clock, and the clock.
    fn store(dir: &std::path::Path) -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        let world = World { clock: clock.clone(), ..World::real() };
        (Store::open(dir, Options::default(), world).unwrap(), clock)
    }

    #[test]
    fn a_snapshot_lasts_while_it_is_used_and_not_longer() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let dyn_clock: Arc<dyn Clock> = clock.clone();
        let pins = Pins::default();
        let txn = pins.pin(ReadSnapshot::new(store.snapshot(), &dyn_clock)).unwrap();
        let while_used = Duration::from_secs(20);
        for _ in 0..SNAPSHOT_AGE_MAX.as_secs() / while_used.as_secs() {
            pins.get(txn.raw()).unwrap();
            clock.advance(while_used);
        }
        pins.get(txn.raw()).unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(matches!(pins.get(txn.raw()), Err(Error::Unpinned(unpinned)) if unpinned == txn));
        assert!(!pins.release(txn));
        let txn = pins.pin(ReadSnapshot::new(store.snapshot(), &dyn_clock)).unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(pins.get(txn.raw()).is_err(), "it was not used");
    }

    #[test]
    fn a_call_that_makes_progress_keeps_its_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let dyn_clock: Arc<dyn Clock> = clock.clone();
        let snapshot = ReadSnapshot::new(store.snapshot(), &dyn_clock);
        for _ in 0..3 * SNAPSHOT_AGE_MAX.as_secs() / 20 {
            snapshot.renew().unwrap();
            clock.advance(Duration::from_secs(20));
        }
        snapshot.renew().unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(matches!(snapshot.renew(), Err(Error::Unpinned(_))), "the call made no progress");
    }

    #[test]
    fn a_txn_pinned_twice_is_held_until_both_pins_are_released() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let clock: Arc<dyn Clock> = clock;
        let pins = Pins::default();
        let first = pins.pin(ReadSnapshot::new(store.snapshot(), &clock)).unwrap();
        let second = pins.pin(ReadSnapshot::new(store.snapshot(), &clock)).unwrap();
        assert_eq!(first, second, "nothing was written between them");
        assert!(pins.release(first));
        pins.get(second.raw()).unwrap();
        assert!(pins.release(second) && !pins.release(second));
        assert!(pins.get(second.raw()).is_err());
    }
}
