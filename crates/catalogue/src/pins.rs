//! Moments that readers hold, so that several requests, or the many messages
//! of one, see the same records. The engine gives up what nobody has used for
//! a while; using it here holds on to it: for a call as long as it makes
//! progress, between calls up to an age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::world::Clock;
use stele_engine::{Snapshot, Store, Txn, View};

use crate::error::{Error, Result};
use crate::limits::{MOMENT_AGE_MAX, PINS_MAX};

/// A moment that is read. Who goes on using it keeps it readable.
#[derive(Clone)]
pub struct Moment {
    snapshot: Arc<Snapshot>,
    clock: Arc<dyn Clock>,
    begun: Duration,
}

impl Moment {
    pub fn new(store: &Store, clock: &Arc<dyn Clock>) -> Moment {
        Moment { snapshot: store.snapshot(), clock: clock.clone(), begun: clock.elapsed() }
    }

    pub fn txn(&self) -> Txn {
        self.snapshot.txn()
    }

    pub fn view(&self) -> View {
        View::At(self.snapshot.clone())
    }

    /// Holds on to it for a while more, unless it is too old for that. Fails
    /// once it has been given up.
    pub fn use_again(&self) -> Result<()> {
        let young = self.clock.elapsed() < self.begun + MOMENT_AGE_MAX;
        let held = if young { self.snapshot.renew() } else { self.snapshot.check() };
        held.map_err(|_| Error::Unpinned(self.txn()))
    }

    /// Holds on to it for a call that makes progress, however long that takes.
    pub fn renew(&self) -> Result<()> {
        self.snapshot.renew().map_err(|_| Error::Unpinned(self.txn()))
    }

    fn is_held(&self) -> bool {
        self.snapshot.check().is_ok()
    }
}

/// Moments that are held between requests, by their txns.
#[derive(Default)]
pub struct Pins {
    held: Mutex<BTreeMap<Txn, Pin>>,
}

struct Pin {
    moment: Moment,
    /// How many asked for it, and have not let go.
    holders: u32,
}

impl Pins {
    /// Holds a moment until it is not used any more or let go.
    pub fn hold(&self, moment: Moment) -> Result<Txn> {
        let mut held = self.held.lock();
        let txn = moment.txn();
        if let Some(pin) = held.get_mut(&txn) {
            pin.holders = pin.holders.saturating_add(1);
            // The younger of two at the same txn lasts longer.
            pin.moment = moment;
            return Ok(txn);
        }
        if held.len() >= PINS_MAX {
            held.retain(|_, pin| pin.moment.is_held());
        }
        if held.len() >= PINS_MAX {
            let what = format!("{PINS_MAX} txns are held already: unpin some, or wait");
            return Err(Error::Exhausted(what));
        }
        held.insert(txn, Pin { moment, holders: 1 });
        Ok(txn)
    }

    /// Lets go of what one holder asked for. Tells whether it was held.
    pub fn release(&self, txn: Txn) -> bool {
        let mut held = self.held.lock();
        let Some(pin) = held.get_mut(&txn) else { return false };
        let was_held = pin.moment.is_held();
        pin.holders -= 1;
        if pin.holders == 0 || !was_held {
            held.remove(&txn);
        }
        was_held
    }

    /// The moment that a request names by its txn.
    pub fn get(&self, txn: u64) -> Result<Moment> {
        let txn = Txn::from_raw(txn).ok_or_else(|| Error::invalid(format!("no txn is {txn}")))?;
        let mut held = self.held.lock();
        let moment = held.get(&txn).map(|pin| pin.moment.clone()).ok_or(Error::Unpinned(txn))?;
        if let Err(gone) = moment.use_again() {
            held.remove(&txn);
            return Err(gone);
        }
        Ok(moment)
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::Options;
    use stele_engine::world::{ManualClock, World};

    use super::*;

    /// A store whose time stands still, and that time.
    fn store(dir: &std::path::Path) -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        let world = World { clock: clock.clone(), ..World::real() };
        (Store::open(dir, Options::default(), world).unwrap(), clock)
    }

    #[test]
    fn a_moment_lasts_while_it_is_used_and_not_longer() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let dyn_clock: Arc<dyn Clock> = clock.clone();
        let pins = Pins::default();
        let txn = pins.hold(Moment::new(&store, &dyn_clock)).unwrap();
        let while_used = Duration::from_secs(20);
        for _ in 0..MOMENT_AGE_MAX.as_secs() / while_used.as_secs() {
            pins.get(txn.raw()).unwrap();
            clock.advance(while_used);
        }
        pins.get(txn.raw()).unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(matches!(pins.get(txn.raw()), Err(Error::Unpinned(told)) if told == txn));
        assert!(!pins.release(txn));
        let txn = pins.hold(Moment::new(&store, &dyn_clock)).unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(pins.get(txn.raw()).is_err(), "nobody has used it");
    }

    #[test]
    fn a_call_that_makes_progress_keeps_its_moment_for_as_long_as_it_takes() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let dyn_clock: Arc<dyn Clock> = clock.clone();
        let moment = Moment::new(&store, &dyn_clock);
        for _ in 0..3 * MOMENT_AGE_MAX.as_secs() / 20 {
            moment.renew().unwrap();
            clock.advance(Duration::from_secs(20));
        }
        moment.renew().unwrap();
        clock.advance(Duration::from_secs(31));
        assert!(matches!(moment.renew(), Err(Error::Unpinned(_))), "it has stopped");
    }

    #[test]
    fn a_txn_that_two_hold_is_there_until_both_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = store(dir.path());
        let clock: Arc<dyn Clock> = clock;
        let pins = Pins::default();
        let first = pins.hold(Moment::new(&store, &clock)).unwrap();
        let second = pins.hold(Moment::new(&store, &clock)).unwrap();
        assert_eq!(first, second, "nothing was written between them");
        assert!(pins.release(first));
        pins.get(second.raw()).unwrap();
        assert!(pins.release(second) && !pins.release(second));
        assert!(pins.get(second.raw()).is_err());
    }
}
