//! The clock interface of the engine.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync {
    /// Returns microseconds since 1970, for timestamps and purge ages. May jump.
    fn now_micros(&self) -> i64;

    /// Returns the time since some fixed instant, for ages and deadlines. Monotonic.
    fn elapsed(&self) -> Duration;
}

/// The machine's clock.
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that also counts the time during which the machine is suspended, for leases:
/// they lapse meanwhile.
pub struct BootClock;

impl Clock for BootClock {
    fn now_micros(&self) -> i64 {
        SystemClock::new().now_micros()
    }

    fn elapsed(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    }
}

/// A clock that advances only when set.
pub struct ManualClock {
    micros: AtomicI64,
    started: i64,
}

impl ManualClock {
    pub fn at(micros: i64) -> ManualClock {
        ManualClock { micros: AtomicI64::new(micros), started: micros }
    }

    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a step that fits in an i64");
        self.micros.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.micros.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        let micros = self.now_micros() - self.started;
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}
