//! The clock for deadlines and ages, and random numbers. Tests use a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock in microseconds since 1970. Clones share the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The manual time; `None` means the system clock.
    manual_micros: Option<Arc<AtomicI64>>,
}

impl Clock {
    pub fn system() -> Clock {
        Clock::default()
    }

    /// Returns a clock that stands still until it is advanced.
    pub fn manual(micros: i64) -> Clock {
        Clock { manual_micros: Some(Arc::new(AtomicI64::new(micros))) }
    }

    pub fn now(&self) -> i64 {
        match &self.manual_micros {
            Some(manual_micros) => manual_micros.load(Ordering::SeqCst),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                micros(since)
            }
        }
    }

    /// Returns the time in whole milliseconds, as cells require.
    pub fn now_of_cells(&self) -> i64 {
        whole_millis(self.now())
    }

    /// Advances a manual clock; does nothing to the system clock.
    pub fn advance(&self, by: Duration) {
        if let Some(manual_micros) = &self.manual_micros {
            manual_micros.fetch_add(micros(by), Ordering::SeqCst);
        }
    }
}

pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub fn whole_millis(micros: i64) -> i64 {
    micros - micros.rem_euclid(1000)
}

/// Returns a random number, which is not a secret.
pub fn random() -> u64 {
    fastrand::u64(..)
}
