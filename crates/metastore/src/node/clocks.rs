//! The timestamps of proposals.
//!
//! Stored timestamps never decrease, so one wrong clock would permanently break
//! lookups by time. The wall clock is therefore trusted when the member is
//! opened, and afterwards only as long as it agrees with the monotonic clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use stele_engine::world::Clock;

/// How far the wall clock may run ahead of its expected time.
const AHEAD_MICROS_MAX: i64 = 3600 * 1_000_000;

/// The clocks of a member since it was opened.
pub struct Clocks {
    clock: Arc<dyn Clock>,
    opened: Duration,
    /// The wall clock and the group clock when the member was opened.
    wall_micros: i64,
    group_micros: i64,
    /// The wall clock is trusted up to here without reading the monotonic
    /// clock.
    trusted_micros: AtomicI64,
}

impl Clocks {
    pub fn start(clock: Arc<dyn Clock>, group_micros: i64) -> Clocks {
        let (opened, wall_micros) = (clock.elapsed(), clock.now_micros());
        let trusted_micros = AtomicI64::new(wall_micros);
        Clocks { clock, opened, wall_micros, group_micros, trusted_micros }
    }

    /// Returns the wall clock, limited to an hour above the later of two
    /// expectations: its value at open and its value at the newest sample
    /// (`sampled`: the time, and the group clock then), each plus the time that
    /// has passed since. Without a sample there is no limit.
    pub fn proposal_micros(&self, sampled: impl FnOnce() -> Option<(i64, i64)>) -> i64 {
        let wall_micros = self.clock.now_micros();
        if wall_micros <= self.trusted_micros.load(Ordering::Relaxed) {
            return wall_micros;
        }
        let elapsed = self.clock.elapsed().saturating_sub(self.opened).as_micros();
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        let since_open = self.wall_micros.saturating_add(elapsed).saturating_add(AHEAD_MICROS_MAX);
        self.trusted_micros.store(since_open, Ordering::Relaxed);
        if wall_micros <= since_open {
            return wall_micros;
        }
        let Some((time_micros, clock_micros)) = sampled() else { return wall_micros };
        let elapsed = self.group_micros.saturating_add(elapsed).saturating_sub(clock_micros).max(0);
        let since_sample = time_micros.saturating_add(elapsed).saturating_add(AHEAD_MICROS_MAX);
        wall_micros.min(since_open.max(since_sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = AHEAD_MICROS_MAX;

    /// A wall clock that tests set, with a monotonic clock that stands still.
    struct Wall(AtomicI64);

    impl Clock for Wall {
        fn now_micros(&self) -> i64 {
            self.0.load(Ordering::SeqCst)
        }

        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn the_clock_at_the_opening_is_trusted_and_later_jumps_are_not() {
        let wall = Arc::new(Wall(AtomicI64::new(100 * HOUR)));
        let clocks = Clocks::start(wall.clone(), 7 * HOUR);
        // The newest sample was taken before a downtime of days.
        let sampled = || Some((20 * HOUR, 7 * HOUR));
        for (set, expected) in [(100, 100), (99, 99), (101, 101), (900, 101)] {
            wall.0.store(set * HOUR, Ordering::SeqCst);
            assert_eq!(clocks.proposal_micros(sampled), expected * HOUR, "{set}");
        }
        let later = || Some((101 * HOUR, 7 * HOUR));
        assert_eq!(clocks.proposal_micros(later), 102 * HOUR, "an hour more each sample");
    }
}
