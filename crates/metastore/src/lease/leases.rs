//! The leases of a node, with their deadlines.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use stele_engine::world::Clock;
use tokio::sync::Notify;

use super::clock::GroupClock;
use super::deadlines::Renewal;
use super::wheel::Wheel;
use crate::command::within;
use crate::error::Result;
use crate::state::{MemberState, tables};

/// The maximum TTL, which is practically forever.
pub const TTL_SECONDS_MAX: i64 = 9_000_000_000;

/// The leases of a node, with their deadlines.
pub struct Leases {
    pub(super) state: Arc<MemberState>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) inner: Mutex<Inner>,
    /// Notified when a lease may expire, or its deadline is to be recorded, before
    /// the time that `next_due` or `next_record` returned.
    pub(super) earlier: Arc<Notify>,
    /// Whether another member may lead next.
    pub(super) has_peers: AtomicBool,
}

pub(super) struct Inner {
    pub leases: HashMap<i64, Lease>,
    pub wheel: Wheel,
    pub clock: GroupClock,
    /// The term in which this member leads, or last led.
    pub acting_term: u64,
    /// The term in which the group clock was last recorded.
    pub recorded_term: u64,
    /// Leases whose deadlines are to be recorded, with the next record of the
    /// clock or at once.
    pub unrecorded: Vec<i64>,
    pub record_at_once: bool,
    /// When this member last proposed to record the clock.
    pub recorded_at: Duration,
    /// Entries that left the wheel and have not been examined yet.
    pub overdue: Vec<(i64, u64)>,
    /// The last result of `next_due`.
    pub next_due: Duration,
}

pub(super) struct Lease {
    pub ttl_seconds: i64,
    pub deadline: Duration,
    /// The lease's tick in the wheel; entries at other ticks are obsolete.
    pub tick: u64,
    /// The lease has expired, and its revocation has been proposed.
    pub expiring: bool,
    /// The deadline in the log, by the group clock.
    pub recorded_micros: Option<i64>,
    /// A renewal waits until its deadline is recorded.
    pub awaits_record: bool,
}

/// The status of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub id: i64,
    /// Whole seconds until it expires.
    pub ttl_seconds: i64,
    pub granted_seconds: i64,
}

impl Leases {
    /// Loads the stored leases, each with its full TTL, and continues the group
    /// clock.
    pub fn open(
        state: Arc<MemberState>,
        clock: Arc<dyn Clock>,
        group_micros: i64,
    ) -> Result<Leases> {
        let (stored, now) = (state.tables.read_leases(&state.store)?, clock.elapsed());
        let inner = Mutex::new(Inner {
            leases: HashMap::with_capacity(stored.len()),
            wheel: Wheel::new(now),
            clock: GroupClock::start(group_micros, now),
            acting_term: 0,
            recorded_term: 0,
            unrecorded: Vec::new(),
            record_at_once: false,
            recorded_at: now,
            overdue: Vec::new(),
            next_due: Duration::MAX,
        });
        let (earlier, has_peers) = (Arc::default(), AtomicBool::new(false));
        let leases = Leases { state, clock, inner, earlier, has_peers };
        for (id, lease) in stored {
            leases.grant(id, lease.ttl_seconds);
            if let Some(deadline) = lease.deadline_micros {
                leases.apply_deadline(id, deadline);
            }
        }
        Ok(leases)
    }

    /// Makes these the leases of a member of a group of several.
    pub fn set_has_peers(&self) {
        self.has_peers.store(true, Ordering::Relaxed);
    }

    /// Renews a lease in a group of one, without writing to the log. Returns its
    /// granted TTL, or `None` if there is no such lease or it is being expired.
    pub fn keep_alive(&self, id: i64) -> Option<i64> {
        match self.renew(id, self.clock.elapsed()) {
            Renewal::Renewed(ttl_seconds) => Some(ttl_seconds),
            Renewal::Ended | Renewal::Unrecorded => None,
        }
    }

    /// Returns the status of a lease, or `None` if it does not exist.
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

    /// Returns the keys attached to a lease; fails if they need too much
    /// memory.
    pub fn keys(&self, id: i64) -> Result<Vec<Bytes>> {
        const KEYS_BYTES_MAX: usize = 32 << 20;
        let table = self.state.tables.lease_keys;
        let rows = self.state.owned_rows_some(table, id, usize::MAX, KEYS_BYTES_MAX)?;
        let bytes = rows.iter().map(Vec::len).sum::<usize>();
        within("bytes of the keys of a lease", bytes, KEYS_BYTES_MAX)?;
        let key = |row: Vec<u8>| Bytes::from(row).slice(tables::OWNER_BYTES..);
        Ok(rows.into_iter().map(key).collect())
    }

    /// Returns all leases, ordered by deadline.
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

    /// Returns a random id that no lease has.
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
        let mut lease = Lease {
            ttl_seconds,
            deadline: now,
            tick: 0,
            expiring: false,
            recorded_micros: None,
            awaits_record: false,
        };
        lease.deadline = now + lease.ttl();
        lease.tick = inner.wheel.insert(id, lease.deadline);
        let mut earlier = lease.deadline < inner.next_due;
        inner.leases.insert(id, lease);
        if self.leads(&inner) {
            earlier |= inner.unrecorded.is_empty();
            inner.unrecorded.push(id);
        }
        drop(inner);
        if earlier {
            self.earlier.notify_one();
        }
    }

    pub(crate) fn revoke(&self, id: i64) {
        self.inner.lock().leases.remove(&id);
    }

    /// Returns at most `count_max` expired leases to revoke. They cannot be
    /// renewed until they are revoked or passed to `retry_later`.
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

    /// Makes those of these leases that still exist overdue again, because they
    /// had more keys than one entry deletes.
    pub fn expire_again(&self, ids: &[i64]) {
        let mut inner = self.inner.lock();
        let Inner { leases, overdue, .. } = &mut *inner;
        // Reversed, because `expired` takes from the end.
        for id in ids.iter().rev() {
            if let Some(lease) = leases.get(id).filter(|lease| lease.expiring) {
                overdue.push((*id, lease.tick));
            }
        }
    }

    /// Puts leases that could not be revoked back into the wheel.
    pub fn retry_later(&self, ids: &[i64]) {
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

    /// Gives every lease its full TTL again.
    pub fn refresh(&self) {
        let now = self.clock.elapsed();
        for lease in self.inner.lock().leases.values_mut() {
            lease.deadline = now + lease.ttl();
        }
    }

    /// Returns the time until a lease may expire; `None` if there are no
    /// leases.
    pub fn next_due(&self) -> Option<Duration> {
        let mut inner = self.inner.lock();
        let next = if inner.overdue.is_empty() { inner.wheel.next() } else { Some(Duration::ZERO) };
        inner.next_due = next.unwrap_or(Duration::MAX);
        Some(next?.saturating_sub(self.clock.elapsed()))
    }

    /// Returns the event that is notified when a lease may expire before the
    /// time that `next_due` returned.
    pub fn earlier(&self) -> Arc<Notify> {
        self.earlier.clone()
    }
}

impl Lease {
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_seconds.clamp(0, TTL_SECONDS_MAX) as u64)
    }
}
