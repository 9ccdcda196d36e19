//! A timing wheel: finds entries that are due without examining the others.
//! Moving a deadline does not touch the wheel; an entry that comes due too
//! early is inserted again.

use std::time::Duration;

/// The resolution.
pub const SLOT: Duration = Duration::from_millis(250);
const SLOTS: usize = 4096;

pub struct Wheel {
    slots: Vec<Vec<i64>>,
    /// The first slot that has not been drained.
    now: u64,
    entries: usize,
}

impl Wheel {
    pub fn new(now: Duration) -> Wheel {
        Wheel { slots: vec![Vec::new(); SLOTS], now: tick(now), entries: 0 }
    }

    /// Inserts an id to come due at or soon after `at`, or earlier if that is
    /// beyond the wheel's horizon. Returns the tick at which it comes due.
    pub fn insert(&mut self, id: i64, at: Duration) -> u64 {
        // A slot is due when it has passed, so that nothing within the horizon
        // is early.
        let due = (tick(at) + 1).clamp(self.now, self.now + SLOTS as u64 - 1);
        self.slots[slot(due)].push(id);
        self.entries += 1;
        due
    }

    /// Removes the entries that are due by `now`, with their ticks.
    pub fn advance(&mut self, now: Duration, due: &mut Vec<(i64, u64)>) {
        let now = tick(now);
        let last = now.min(self.now + SLOTS as u64 - 1);
        for at in self.now..=last {
            let ids = std::mem::take(&mut self.slots[slot(at)]);
            self.entries -= ids.len();
            due.extend(ids.into_iter().map(|id| (id, at)));
        }
        self.now = self.now.max(now + 1);
    }

    /// Returns when the next entry is due.
    pub fn next(&self) -> Option<Duration> {
        if self.entries == 0 {
            return None;
        }
        let ahead = (0..SLOTS as u64).find(|ahead| !self.slots[slot(self.now + ahead)].is_empty());
        ahead.map(|ahead| SLOT.saturating_mul(u32::try_from(self.now + ahead).unwrap_or(u32::MAX)))
    }
}

fn tick(at: Duration) -> u64 {
    u64::try_from(at.as_nanos() / SLOT.as_nanos()).unwrap_or(u64::MAX / 2)
}

fn slot(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel, seconds: u64) -> Vec<i64> {
        let mut due = Vec::new();
        wheel.advance(Duration::from_secs(seconds), &mut due);
        due.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn entries_come_up_after_their_time_and_not_before() {
        let mut wheel = Wheel::new(Duration::from_secs(100));
        wheel.insert(1, Duration::from_secs(105));
        wheel.insert(2, Duration::from_secs(103));
        assert!(wheel.next().unwrap() >= Duration::from_secs(103));
        assert!(due(&mut wheel, 103).is_empty());
        assert_eq!(due(&mut wheel, 104), [2]);
        assert_eq!(due(&mut wheel, 200), [1]);
        assert_eq!(wheel.next(), None);
        wheel.insert(3, Duration::from_secs(1));
        assert_eq!(due(&mut wheel, 201), [3], "what is late comes up at once");
    }

    #[test]
    fn a_far_entry_comes_up_early_and_a_long_pause_loses_nothing() {
        let mut wheel = Wheel::new(Duration::ZERO);
        let far = Duration::from_secs(1 << 40);
        wheel.insert(1, far);
        for id in 2..100 {
            wheel.insert(id, Duration::from_secs(id as u64 * 10));
        }
        let mut all = due(&mut wheel, 1 << 30);
        all.sort_unstable();
        assert_eq!(all, (1..100).collect::<Vec<_>>());
    }
}
