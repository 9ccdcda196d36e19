//! Live snapshots: the txns that flush and compaction must keep readable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::txn::Txn;
use crate::world::Clock;

/// The snapshots held by readers. Each expires at its deadline.
pub struct Snapshots {
    clock: Arc<dyn Clock>,
    age_max: Duration,
    state: Mutex<LiveSnapshots>,
}

#[derive(Default)]
struct LiveSnapshots {
    next_id: u64,
    live: BTreeMap<u64, LiveSnapshot>,
}

struct LiveSnapshot {
    txn: Txn,
    taken: Duration,
    deadline: Duration,
}

impl Snapshots {
    pub fn new(clock: Arc<dyn Clock>, age_max: Duration) -> Arc<Snapshots> {
        Arc::new(Snapshots { clock, age_max, state: Mutex::default() })
    }

    /// Takes a snapshot at the txn that `newest` returns. `newest` is called
    /// with the lock held, so that no rewrite can start in between and miss the
    /// snapshot.
    pub fn hold(self: &Arc<Self>, newest: impl FnOnce() -> Txn) -> Snapshot {
        let mut state = self.state.lock();
        let txn = newest();
        let id = state.next_id;
        state.next_id += 1;
        let taken = self.clock.elapsed();
        state.live.insert(id, LiveSnapshot { txn, taken, deadline: taken + self.age_max });
        Snapshot { registry: self.clone(), id, txn }
    }

    /// Returns the txns that a rewrite must preserve, in ascending order. The
    /// last one is `newest`; every later snapshot is at or above it.
    pub fn live(&self, newest: impl FnOnce() -> Txn) -> Vec<Txn> {
        let mut state = self.state.lock();
        let now = self.clock.elapsed();
        state.live.retain(|_, held| now <= held.deadline);
        let newest = newest();
        let mut txns: Vec<Txn> = state.live.values().map(|held| held.txn).collect();
        txns.retain(|&txn| txn < newest);
        txns.push(newest);
        txns.sort_unstable();
        txns.dedup();
        txns
    }
}

/// A txn at which everything stays readable until this is dropped or expires.
pub struct Snapshot {
    registry: Arc<Snapshots>,
    id: u64,
    txn: Txn,
}

impl Snapshot {
    pub fn txn(&self) -> Txn {
        self.txn
    }

    /// Fails if the snapshot has expired. Readers call this after pinning the
    /// files that they read.
    pub fn check(&self) -> Result<()> {
        let state = self.registry.state.lock();
        let now = self.registry.clock.elapsed();
        match state.live.get(&self.id) {
            Some(held) if now <= held.deadline => Ok(()),
            _ => Err(Error::SnapshotExpired { snapshot: self.txn }),
        }
    }
}

impl Snapshot {
    /// Extends the snapshot to the lifetime of a new one. Fails if it has
    /// expired.
    pub fn renew(&self) -> Result<()> {
        let mut state = self.registry.state.lock();
        let now = self.registry.clock.elapsed();
        match state.live.get_mut(&self.id) {
            Some(held) if now <= held.deadline => {
                held.deadline = now + self.registry.age_max;
                Ok(())
            }
            _ => Err(Error::SnapshotExpired { snapshot: self.txn }),
        }
    }
}

impl Snapshot {
    /// Extends the snapshot to `ages` times the lifetime of a new one, but to
    /// at most `age_max` after it was taken. Does nothing if it has expired.
    pub(crate) fn extend(&self, ages: u32, age_max: Duration) {
        let mut state = self.registry.state.lock();
        let now = self.registry.clock.elapsed();
        if let Some(held) = state.live.get_mut(&self.id).filter(|held| now <= held.deadline) {
            let deadline = (now + self.registry.age_max * ages).min(held.taken + age_max);
            held.deadline = held.deadline.max(deadline);
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.registry.state.lock().live.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::ManualClock;

    #[test]
    fn a_held_snapshot_is_respected_until_it_is_dropped_or_too_old() {
        let clock = Arc::new(ManualClock::at(0));
        let snapshots = Snapshots::new(clock.clone(), Duration::from_secs(30));
        let txn = Txn::base;
        let old = snapshots.hold(|| txn(3));
        let young = snapshots.hold(|| txn(5));
        assert_eq!(snapshots.live(|| txn(9)), [txn(3), txn(5), txn(9)]);
        drop(young);
        assert_eq!(snapshots.live(|| txn(9)), [txn(3), txn(9)]);
        clock.advance(Duration::from_secs(31));
        assert!(matches!(old.check(), Err(Error::SnapshotExpired { .. })));
        assert_eq!(snapshots.live(|| txn(9)), [txn(9)]);
        assert!(old.renew().is_err(), "an expired snapshot cannot be renewed");
    }

    #[test]
    fn a_renewed_snapshot_lives_as_long_as_a_new_one() {
        let clock = Arc::new(ManualClock::at(0));
        let snapshots = Snapshots::new(clock.clone(), Duration::from_secs(30));
        let held = snapshots.hold(|| Txn::base(3));
        for _ in 0..3 {
            clock.advance(Duration::from_secs(29));
            held.renew().unwrap();
        }
        assert_eq!(snapshots.live(|| Txn::base(9)), [Txn::base(3), Txn::base(9)]);
        clock.advance(Duration::from_secs(31));
        assert!(held.renew().is_err());
    }
}
