//! Deadlines that survive a change of leaders.
//!
//! In a group of several, the log has for each lease a deadline by the group
//! clock that no leader passes: a renewal is answered once the recorded deadline
//! is late enough. It is recorded with some slack, so most renewals write
//! nothing, and all leases that wait for it share an entry. A new leader takes
//! the recorded deadlines over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::leases::{Inner, Lease, Leases};
use crate::command::LEVEL_OF_DEADLINES;
use crate::state::StoredLease;

/// How often the group clock is recorded while there are leases. A lease ends at
/// most this much later if all members lose power.
pub const RECORDED_EVERY: Duration = Duration::from_secs(1);
/// The maximum number of deadlines in an entry.
const RECORDED_AT_ONCE: usize = 10_000;

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Until the TTL in seconds has passed.
    Renewed(i64),
    /// There is no such lease, or it is being expired.
    Ended,
    /// Once its deadline is recorded.
    Unrecorded,
}

/// Deadlines to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    pub clock_micros: i64,
    /// Ids of leases, and their deadlines by the group clock.
    pub leases: Vec<(i64, i64)>,
}

impl Leases {
    /// Renews a lease as of a point of the monotonic clock, when the request was
    /// received.
    pub fn renew(&self, id: i64, asked: Duration) -> Renewal {
        let replicated = self.is_replicated();
        let mut inner = self.inner.lock();
        let current = self.leads(&inner) && inner.recorded_term == inner.acting_term;
        let clock = inner.clock;
        let Some(lease) = inner.leases.get_mut(&id).filter(|lease| !lease.expiring) else {
            return Renewal::Ended;
        };
        lease.deadline = lease.deadline.max(asked + lease.ttl());
        let needed = clock.at(asked + lease.ttl());
        // Another leader may have had another clock. This one counts from its
        // first record on, which whoever leads next has applied.
        let recorded = current && lease.recorded_micros.is_some_and(|until| until >= needed);
        if !replicated || recorded {
            return Renewal::Renewed(lease.ttl_seconds);
        }
        lease.awaits_record = true;
        inner.unrecorded.push(id);
        inner.record_at_once = true;
        drop(inner);
        self.earlier.notify_one();
        Renewal::Unrecorded
    }

    /// Begins a term as the leader, `silence` after the last leader was heard of.
    pub fn take_over(&self, term: u64, silence: Duration) {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.acting_term = term;
        inner.clock.resume(silence, now);
        inner.unrecorded.clear();
        inner.record_at_once = true;
        // In an order that does not depend on the map.
        let mut leases: Vec<(&i64, &mut Lease)> = inner.leases.iter_mut().collect();
        leases.sort_unstable_by_key(|(id, _)| **id);
        for (id, lease) in leases {
            lease.awaits_record = false;
            lease.deadline = match lease.recorded_micros {
                Some(micros) => inner.clock.when(micros, now),
                // It may have been renewed until now.
                None => now + lease.ttl(),
            };
            lease.tick = inner.wheel.insert(*id, lease.deadline);
            if lease.recorded_micros.is_none() {
                inner.unrecorded.push(*id);
            }
        }
    }

    /// Returns the deadlines to record now, if any are due.
    pub fn take_unrecorded(&self) -> Option<Deadlines> {
        if !self.is_replicated() || self.next_record()? > Duration::ZERO {
            return None;
        }
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        inner.recorded_at = now;
        let rest = inner.unrecorded.len().min(RECORDED_AT_ONCE);
        let rest = inner.unrecorded.split_off(rest);
        inner.record_at_once = !rest.is_empty();
        let mut ids = std::mem::replace(&mut inner.unrecorded, rest);
        ids.sort_unstable();
        ids.dedup();
        let clock = inner.clock;
        let mut leases = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(lease) = inner.leases.get_mut(&id) else { continue };
            let slack = if lease.awaits_record { lease.slack() } else { Duration::ZERO };
            lease.awaits_record = false;
            leases.push((id, clock.at(lease.deadline + slack)));
        }
        Some(Deadlines { clock_micros: clock.at(now), leases })
    }

    /// Returns the time until deadlines are to be recorded; `None` if there are no
    /// leases or they are not recorded.
    pub fn next_record(&self) -> Option<Duration> {
        if !self.is_replicated() {
            return None;
        }
        let now = self.clock.elapsed();
        let inner = self.inner.lock();
        if inner.leases.is_empty() {
            return None;
        }
        let due = inner.recorded_at + RECORDED_EVERY;
        Some(if inner.record_at_once { Duration::ZERO } else { due.saturating_sub(now) })
    }

    /// Records the deadlines again that could not be recorded.
    pub fn record_again(&self, deadlines: &Deadlines) {
        let mut inner = self.inner.lock();
        inner.unrecorded.extend(deadlines.leases.iter().map(|(id, _)| *id));
        inner.record_at_once = true;
    }

    /// Applies a record of the group clock in a term.
    pub(crate) fn apply_clock(&self, term: u64, micros: i64) {
        let now = self.clock.elapsed();
        let mut inner = self.inner.lock();
        inner.recorded_term = term;
        if term == inner.acting_term {
            inner.clock.note_recorded(micros);
        } else {
            inner.clock.follow(micros, now);
        }
    }

    /// Applies the record of a deadline, which never decreases: an entry
    /// may be older than the renewals that rely on the one before. Returns the lease, or `None` if it has ended.
    pub(crate) fn apply_deadline(&self, id: i64, micros: i64) -> Option<StoredLease> {
        let mut inner = self.inner.lock();
        let lease = inner.leases.get_mut(&id)?;
        // Of the two, `None` is the smaller one.
        lease.recorded_micros = lease.recorded_micros.max(Some(micros));
        let deadline_micros = lease.recorded_micros;
        Some(StoredLease { ttl_seconds: lease.ttl_seconds, deadline_micros })
    }

    /// Returns the group clock.
    pub fn group_micros(&self) -> i64 {
        let now = self.clock.elapsed();
        self.inner.lock().clock.at(now)
    }

    /// Returns whether this member records the deadlines: no later leader is known.
    pub(super) fn leads(&self, inner: &Inner) -> bool {
        self.is_replicated() && self.state.applied().term == inner.acting_term
    }

    /// Returns whether deadlines are recorded in the log.
    fn is_replicated(&self) -> bool {
        self.has_peers.load(Ordering::Relaxed) && self.state.level() >= LEVEL_OF_DEADLINES
    }
}

impl Lease {
    /// How much later the recorded deadline of a renewed lease is, so that the next
    /// renewal need not be recorded.
    fn slack(&self) -> Duration {
        self.ttl() / 2
    }
}
