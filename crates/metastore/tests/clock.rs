//! The clock of tests that control time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use stele_engine::world::Clock;

/// A clock whose wall time and monotonic time can be set independently.
#[derive(Default)]
pub struct TestClock {
    wall_micros: AtomicI64,
    running_micros: AtomicI64,
}

impl TestClock {
    /// Advances both times.
    pub fn run(&self, by: Duration) {
        let by = by.as_micros() as i64;
        self.wall_micros.fetch_add(by, Ordering::SeqCst);
        self.running_micros.fetch_add(by, Ordering::SeqCst);
    }

    pub fn set_wall(&self, micros: i64) {
        self.wall_micros.store(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_micros(&self) -> i64 {
        self.wall_micros.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.running_micros.load(Ordering::SeqCst) as u64)
    }
}
