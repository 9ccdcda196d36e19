//! The lease of a server: until when it may answer. Checked on a clock that counts
//! suspended time, just before each reply (R2.3, R4.4, R5.1).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stele_engine::world::Clock;
use stele_engine::{Error, Result};

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The coordinator ends the lease this long after the last keep-alive.
    pub ttl: Duration,
    /// Time between two keep-alives.
    pub keep_alive: Duration,
    /// The server stops this long before the coordinator may end the lease, so that clocks
    /// of different speed do no harm.
    pub margin: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        LeaseTimes {
            ttl: Duration::from_secs(10),
            keep_alive: Duration::from_millis(2500),
            margin: Duration::from_secs(2),
        }
    }
}

impl LeaseTimes {
    /// Returns the end of a lease whose last request was sent at `sent`, in microseconds.
    fn deadline(&self, sent: Duration) -> u64 {
        let deadline = sent + self.ttl.saturating_sub(self.margin);
        u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The lease of one incarnation of a server. Once it has ended it never begins again.
pub struct Lease {
    epoch: u64,
    clock: Arc<dyn Clock>,
    times: LeaseTimes,
    /// In microseconds of the clock.
    deadline: AtomicU64,
    halted: OnceLock<String>,
}

impl Lease {
    /// Returns the lease of an epoch. The request that began it was sent at `sent`.
    pub(crate) fn new(
        epoch: u64,
        clock: Arc<dyn Clock>,
        times: LeaseTimes,
        sent: Duration,
    ) -> Lease {
        let deadline = AtomicU64::new(times.deadline(sent));
        Lease { epoch, clock, times, deadline, halted: OnceLock::new() }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn times(&self) -> LeaseTimes {
        self.times
    }

    /// Notes that a keep-alive sent at `sent` was answered.
    pub(crate) fn renewed(&self, sent: Duration) {
        // Nothing renews a lease after its deadline: somebody may have seen that it was
        // over.
        if self.check().is_ok() {
            // Answers may arrive out of order.
            self.deadline.fetch_max(self.times.deadline(sent), Ordering::AcqRel);
        }
    }

    /// Fails if the lease has ended. To be called after the last event that a reply
    /// depends on, just before the reply.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let now = u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        if now < self.deadline.load(Ordering::Acquire) && self.halted.get().is_none() {
            return Ok(());
        }
        let what = self.halted.get_or_init(|| "its lease was not renewed in time".into());
        Err(Error::Fenced { epoch: self.epoch, what: what.clone() })
    }

    /// Ends the lease at once.
    pub fn halt(&self, what: impl Into<String>) {
        let what = self.halted.get_or_init(|| what.into());
        tracing::warn!(epoch = self.epoch, %what, "this server stops serving");
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::world::ManualClock;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn r2_3_a_lease_ends_a_margin_before_its_time_and_counts_from_when_the_request_was_sent() {
        let clock = Arc::new(ManualClock::at(0));
        clock.advance(seconds(100));
        let lease = Lease::new(7, clock.clone(), LeaseTimes::default(), seconds(99));
        clock.advance(seconds(6));
        assert!(lease.check().is_ok());
        // The answer to an earlier keep-alive arrives last.
        lease.renewed(seconds(104));
        lease.renewed(seconds(101));
        clock.advance(seconds(5));
        assert!(lease.check().is_ok(), "until 112");
        clock.advance(seconds(1));
        assert!(matches!(lease.check(), Err(Error::Fenced { epoch: 7, .. })));
        lease.renewed(seconds(112));
        assert!(lease.check().is_err(), "it never begins again");
    }

    #[test]
    fn a_halted_lease_has_ended() {
        let lease = Lease::new(7, Arc::new(ManualClock::at(0)), LeaseTimes::default(), seconds(0));
        assert!(lease.check().is_ok());
        lease.halt("its key is gone");
        lease.renewed(seconds(1));
        let ended = lease.check().unwrap_err().to_string();
        assert!(ended.contains("its key is gone"), "{ended}");
    }
}
