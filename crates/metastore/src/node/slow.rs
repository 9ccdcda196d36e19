//! Logs requests that took long, with the time of each phase.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::command::Command;
use crate::phases::Breakdown;

/// The minimum time between two lines, so that a stalled disk does not flood
/// the log.
const LINE_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct SlowLog {
    /// The time of the last line by the monotonic clock, in microseconds plus
    /// one; 0 before the first.
    last: AtomicU64,
    /// Slow requests in all, and those without a line since the last line.
    count: AtomicU64,
    suppressed: AtomicU64,
}

impl SlowLog {
    /// Returns the number of slow requests.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn log(
        &self,
        now: Duration,
        took: Duration,
        breakdown: Option<Breakdown>,
        command: &Command,
    ) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.is_due(now) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        let request = command.describe();
        match breakdown {
            Some(Breakdown { queue, gather, sync, replicate, apply, send }) => tracing::warn!(
                %request, ?took, ?queue, ?gather, ?sync, ?replicate, ?apply, ?send, suppressed,
                "slow request of the metastore"
            ),
            None => tracing::warn!(%request, ?took, suppressed, "slow request of the metastore"),
        }
    }

    /// Returns whether a line may be written now, and claims it.
    fn is_due(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX - 1) + 1;
        let last = self.last.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= LINE_EVERY.as_micros() as u64;
        due && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_of_many_requests_is_one_line_a_second() {
        let slow = SlowLog::default();
        let line = |millis| slow.is_due(Duration::from_millis(millis));
        assert!(line(0) && !line(1) && !line(999) && line(1000) && !line(1001) && line(2000));
    }
}
