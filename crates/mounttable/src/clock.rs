//! The time that deadlines and ages are measured by, and a little randomness.
//! Tests turn the clock by hand.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970. Clones tell the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The hand-turned time; `None` is the system's.
    turned: Option<Arc<AtomicI64>>,
}

impl Clock {
    pub fn system() -> Clock {
        Clock::default()
    }

    /// A clock that stands still until it is advanced.
    pub fn manual(micros: i64) -> Clock {
        Clock { turned: Some(Arc::new(AtomicI64::new(micros))) }
    }

    pub fn now(&self) -> i64 {
        match &self.turned {
            Some(turned) => turned.load(Ordering::SeqCst),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                micros(since)
            }
        }
    }

    /// Whole milliseconds, as cells carry them.
    pub fn now_of_cells(&self) -> i64 {
        whole_millis(self.now())
    }

    /// Turns a manual clock; the system's goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Some(turned) = &self.turned {
            turned.fetch_add(micros(by), Ordering::SeqCst);
        }
    }
}

pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub fn whole_millis(micros: i64) -> i64 {
    micros - micros.rem_euclid(1000)
}

/// A number that nobody can guess well.
pub fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// A pause of up to `longest`, so that those who collided do not meet again.
pub fn jitter(longest: Duration) -> Duration {
    longest.mul_f64((random() >> 11) as f64 / (1u64 << 53) as f64)
}
