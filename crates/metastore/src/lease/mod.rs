//! Leases: who still lives.
//!
//! That a lease was granted or revoked is in the log; when it runs out is not.
//! Deadlines are kept in memory by the leader alone, and a renewal only moves
//! one: no entry, no disk. A `wheel` says which leases may have run out, and
//! those that have are proposed to be revoked. Whoever begins to lead, also
//! after a restart, gives every lease its full time again: a lease may live
//! longer than asked for, never shorter.

mod wheel;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use stele_engine::world::Clock;
use tokio::sync::Notify;
use wheel::Wheel;

use crate::command::within;
use crate::error::Result;
use crate::state::{State, tables};

/// Leases that live longer are as good as forever.
pub const TTL_SECONDS_MAX: i64 = 9_000_000_000;

/// The leases of a node, with their deadlines.
pub struct Leases {
    state: Arc<State>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Told when a lease may run out before `next_due` said.
    earlier: Arc<Notify>,
}

struct Inner {
    leases: HashMap<i64, Lease>,
    wheel: Wheel,
    /// Came up in the wheel and were not looked at yet.
    overdue: Vec<(i64, u64)>,
    /// What `next_due` last said.
    next_due: Duration,
}

struct Lease {
    ttl_seconds: i64,
    deadline: Duration,
    /// Where it is in the wheel; any other entry there is of an earlier life.
    tick: u64,
    /// It has run out, and that has been proposed.
    expiring: bool,
}

/// What is known of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub id: i64,
    /// Whole seconds until it runs out.
    pub ttl_seconds: i64,
    pub granted_seconds: i64,
}

impl Leases {
    /// The stored leases, each with its full time.
    pub fn open(state: Arc<State>, clock: Arc<dyn Clock>) -> Result<Leases> {
        let stored = state.tables.read_leases(&state.store)?;
        let wheel = Wheel::new(clock.elapsed());
        let leases = HashMap::with_capacity(stored.len());
        let inner =
            Mutex::new(Inner { leases, wheel, overdue: Vec::new(), next_due: Duration::MAX });
        let leases = Leases { state, clock, inner, earlier: Arc::default() };
        for (id, ttl_seconds) in stored {
            leases.grant(id, ttl_seconds);
        }
        Ok(leases)
    }

    /// Renews a lease; nothing is logged. `None`: there is no such lease, or it
    /// is running out just now. Otherwise the TTL it was granted.
    pub fn keep_alive(&self, id: i64) -> Option<i64> {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        let lease = inner.leases.get_mut(&id).filter(|lease| !lease.expiring)?;
        lease.deadline = now + lease.ttl();
        Some(lease.ttl_seconds)
    }

    /// `None`: there is no such lease.
    pub fn time_to_live(&self, id: i64) -> Option<LeaseStatus> {
        let now = self.clock.elapsed();
        let inner = self.inner.lock();
        let lease = inner.leases.get(&id)?;
        let left = lease.deadline.saturating_sub(now).as_secs();
        Some(LeaseStatus {
            id,
            ttl_seconds: i64::try_from(left).unwrap_or(i64::MAX),
            granted_seconds: lease.ttl_seconds,
        })
    }

    /// The keys that go with a lease; refused if they are too many to be held.
    pub fn keys(&self, id: i64) -> Result<Vec<Bytes>> {
        const KEYS_BYTES_MAX: usize = 32 << 20;
        let table = self.state.tables.lease_keys;
        let rows = self.state.owned_rows_some(table, id, usize::MAX, KEYS_BYTES_MAX)?;
        let bytes = rows.iter().map(Vec::len).sum::<usize>();
        within("bytes of the keys of a lease", bytes, KEYS_BYTES_MAX)?;
        let key = |row: Vec<u8>| Bytes::from(row).slice(tables::OWNER_BYTES..);
        Ok(rows.into_iter().map(key).collect())
    }

    /// All leases, those that run out first first.
    pub fn list(&self) -> Vec<i64> {
        let inner = self.inner.lock();
        let mut all: Vec<_> =
            inner.leases.iter().map(|(id, lease)| (lease.deadline, *id)).collect();
        drop(inner);
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    pub fn exists(&self, id: i64) -> bool {
        self.inner.lock().leases.contains_key(&id)
    }

    /// An id that no lease has, from random bits.
    pub fn choose_id(&self, mut random: impl FnMut() -> u64) -> i64 {
        let inner = self.inner.lock();
        loop {
            let id = (random() >> 1) as i64;
            if id != 0 && !inner.leases.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn grant(&self, id: i64, ttl_seconds: i64) {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        let mut lease = Lease { ttl_seconds, deadline: now, tick: 0, expiring: false };
        lease.deadline = now + lease.ttl();
        lease.tick = inner.wheel.insert(id, lease.deadline);
        let earlier = lease.deadline < inner.next_due;
        inner.leases.insert(id, lease);
        drop(inner);
        if earlier {
            self.earlier.notify_one();
        }
    }

    pub(crate) fn revoke(&self, id: i64) {
        self.inner.lock().leases.remove(&id);
    }

    /// Leases that have run out and are to be revoked, at most so many. Until
    /// they are, or `spare` takes it back, they cannot be renewed.
    pub fn expired(&self, count_max: usize) -> Vec<i64> {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        let Inner { leases, wheel, overdue, .. } = &mut *inner;
        wheel.advance(now, overdue);
        let mut expired = Vec::new();
        while expired.len() < count_max
            && let Some((id, tick)) = overdue.pop()
        {
            let Some(lease) = leases.get_mut(&id).filter(|lease| lease.tick == tick) else {
                continue;
            };
            if lease.deadline > now {
                lease.tick = wheel.insert(id, lease.deadline);
            } else {
                lease.expiring = true;
                expired.push(id);
            }
        }
        expired
    }

    /// Leases among these that are still there come up again at once: they had
    /// more keys than one entry deletes.
    pub fn expire_again(&self, ids: &[i64]) {
        let mut inner = self.inner.lock();
        let Inner { leases, overdue, .. } = &mut *inner;
        // In their order, which `expired` takes from the end.
        for id in ids.iter().rev() {
            if let Some(lease) = leases.get(id).filter(|lease| lease.expiring) {
                overdue.push((*id, lease.tick));
            }
        }
    }

    /// These could not be revoked: they are to come up again.
    pub fn spare(&self, ids: &[i64]) {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        let Inner { leases, wheel, .. } = &mut *inner;
        for id in ids {
            if let Some(lease) = leases.get_mut(id) {
                lease.expiring = false;
                lease.tick = wheel.insert(*id, now);
            }
        }
    }

    /// Gives every lease its full time again. For a new leader.
    pub fn refresh(&self) {
        let now = self.clock.elapsed();
        for lease in self.inner.lock().leases.values_mut() {
            lease.deadline = now + lease.ttl();
        }
    }

    /// How long it is until a lease may run out; `None`: there is none.
    pub fn next_due(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        let next = if inner.overdue.is_empty() { inner.wheel.next() } else { Some(Duration::ZERO) };
        inner.next_due = next.unwrap_or(Duration::MAX);
        Some(next?.saturating_sub(self.clock.elapsed()))
    }

    /// Is told when a lease may run out before `next_due` said.
    pub fn earlier(&self) -> Arc<Notify> {
        self.earlier.clone()
    }
}

impl Lease {
    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_seconds.clamp(0, TTL_SECONDS_MAX) as u64)
    }
}
