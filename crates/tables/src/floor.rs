//! Truncation of the log of a live server (R6.4, R6.5): the lowest slot that recovery
//! needs is published, and then the objects before it are deleted.

use std::sync::Arc;

use parking_lot::Mutex;
use stele_engine::log::objects::ObjectLog;
use stele_engine::{Error, Result};

use crate::coordinate::{Compare, KeyValue, Op, Transaction, number, parse_number};
use crate::detached::detach;
use crate::incarnation::Incarnation;

/// Raises the floor whenever the engine needs less of the log. Nobody waits for it.
pub(crate) struct FloorKeeper {
    floor: Floor,
    wanted: Mutex<Wanted>,
}

#[derive(Default)]
struct Wanted {
    floor: u64,
    /// Whether it is being raised.
    is_rising: bool,
}

impl FloorKeeper {
    pub(crate) fn new(floor: Floor) -> Arc<FloorKeeper> {
        Arc::new(FloorKeeper { floor, wanted: Mutex::default() })
    }

    pub(crate) fn raise(self: &Arc<Self>, floor: u64) {
        let mut wanted = self.wanted.lock();
        wanted.floor = wanted.floor.max(floor);
        if !std::mem::replace(&mut wanted.is_rising, true) {
            drop(wanted);
            detach(self.clone().keep(floor));
        }
    }

    async fn keep(self: Arc<Self>, mut floor: u64) {
        loop {
            if let Err(error) = self.floor.raise(floor).await {
                self.floor.incarnation.lease.halt(error.to_string());
                return;
            }
            let mut wanted = self.wanted.lock();
            if wanted.floor <= floor {
                wanted.is_rising = false;
                return;
            }
            floor = wanted.floor;
        }
    }
}

/// The floor of the log of an incarnation.
pub struct Floor {
    incarnation: Arc<Incarnation>,
    log: Arc<ObjectLog>,
}

impl Floor {
    pub fn new(incarnation: Arc<Incarnation>, log: Arc<ObjectLog>) -> Floor {
        Floor { incarnation, log }
    }

    /// Publishes that recovery needs no slot before `floor`, and deletes those. The floor
    /// never falls. Fails if another server has begun to recover the log.
    pub async fn raise(&self, floor: u64) -> Result<()> {
        let rules = self.incarnation.world.rules;
        if !rules.floor_before_delete {
            self.log.release_below(floor);
        }
        self.publish(floor).await?;
        self.log.release_below(floor);
        Ok(())
    }

    async fn publish(&self, floor: u64) -> Result<()> {
        let world = &self.incarnation.world;
        let key = world.keys.floor(self.incarnation.epoch);
        loop {
            let found = self.incarnation.insist(|| world.coordinator.get(key.clone())).await?;
            let last = found.as_ref().and_then(|found| parse_number(&found.value));
            if last.is_some_and(|last| last >= floor) {
                return Ok(());
            }
            let transaction = self.transaction(&key, found.as_ref(), floor);
            match world.coordinator.run(transaction).await {
                Ok(done) if done.applied => return Ok(()),
                Ok(done) if done.found.iter().any(|found| found.key != key) => {
                    let what = "another server recovers its log";
                    return Err(Error::Fenced { epoch: self.incarnation.epoch, what: what.into() });
                }
                // An earlier request has arrived meanwhile, or the lease is gone, which the
                // next round finds out.
                Ok(_) => world.pause().await,
                Err(_) => world.pause().await,
            }
        }
    }

    fn transaction(&self, key: &[u8], found: Option<&KeyValue>, floor: u64) -> Transaction {
        let world = &self.incarnation.world;
        let dead = world.keys.dead(self.incarnation.epoch);
        let mut when = vec![self.incarnation.has_lease(), Compare::Absent(dead.clone())];
        if world.rules.floor_only_rises {
            when.push(match found {
                Some(found) => Compare::Modified(key.to_vec(), found.modified),
                None => Compare::Absent(key.to_vec()),
            });
        }
        let then = vec![Op::put(key.to_vec(), number(floor))];
        Transaction { when, then, otherwise: vec![Op::Get(dead)] }
    }
}
