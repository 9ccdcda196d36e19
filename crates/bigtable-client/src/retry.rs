//! The retry policy: how long to wait before another attempt, and how many to
//! make.

use std::time::Duration;

use stele_grpc::backoff;

/// The policy for transient failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The maximum number of attempts without progress; one disables retries.
    pub attempts_max: u32,
    /// The first delay; each further one is twice as long.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts_max: 12,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(5),
        }
    }
}

/// The longest delay that a server may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The attempts of one call.
#[derive(Debug)]
pub struct Attempts {
    retry: Retry,
    failed: u32,
}

impl Attempts {
    pub fn new(retry: Retry) -> Attempts {
        Attempts { retry, failed: 0 }
    }

    /// Resets the count after progress.
    pub fn progress(&mut self) {
        self.failed = 0;
    }

    /// Counts a failure and returns the delay before the next attempt; `None` if
    /// there is none.
    pub fn pause(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        self.failed += 1;
        if self.failed >= self.retry.attempts_max {
            return None;
        }
        if let Some(delay) = retry_after {
            return Some(delay.min(RETRY_AFTER_MAX));
        }
        let Retry { backoff_min, backoff_max, .. } = self.retry;
        Some(backoff::delay(backoff_min, backoff_max, self.failed - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_attempts_end() {
        let retry = Retry {
            attempts_max: 8,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_millis(100),
        };
        let mut attempts = Attempts::new(retry);
        for longest in [10, 20, 40, 80, 100, 100, 100].map(Duration::from_millis) {
            let pause = attempts.pause(None).unwrap();
            assert!(longest / 2 <= pause && pause <= longest, "{pause:?} of {longest:?}");
        }
        assert_eq!(attempts.pause(None), None);
    }

    #[test]
    fn progress_resets_the_count_and_requested_delays_are_respected() {
        let mut attempts = Attempts::new(Retry { attempts_max: 2, ..Retry::default() });
        let delay = Duration::from_secs(7);
        assert_eq!(attempts.pause(Some(delay)), Some(delay));
        attempts.progress();
        assert_eq!(attempts.pause(Some(Duration::from_secs(900))), Some(RETRY_AFTER_MAX));
        assert_eq!(attempts.pause(Some(delay)), None);
    }
}
