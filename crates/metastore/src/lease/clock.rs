//! The group clock: how long the group has had a leader. It is in the log, so it
//! survives every member, and it is never compared with a wall clock.
//!
//! Between two entries that record it, each member lets it run with its own
//! monotonic clock. A member that applies a recorded value takes that one, which
//! the leader had read before: so its clock is behind that of the leader, and
//! what it decides by it comes later, never earlier.

use std::time::Duration;

/// The group clock of a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupClock {
    /// The group clock at a point of the monotonic clock.
    micros: i64,
    at: Duration,
    /// The newest value in the log.
    recorded: i64,
}

impl GroupClock {
    pub fn start(recorded: i64, now: Duration) -> GroupClock {
        GroupClock { micros: recorded, at: now, recorded }
    }

    /// Returns the group clock at a point of the monotonic clock.
    pub fn at(&self, at: Duration) -> i64 {
        let later = |by: Duration| i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        match at.checked_sub(self.at) {
            Some(since) => self.micros.saturating_add(later(since)),
            None => self.micros.saturating_sub(later(self.at - at)),
        }
    }

    /// Returns when the group clock will have a value; `now` if that has passed.
    pub fn when(&self, micros: i64, now: Duration) -> Duration {
        let left = micros.saturating_sub(self.at(now));
        now + Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    /// Takes a value that another leader has recorded.
    pub fn follow(&mut self, recorded: i64, now: Duration) {
        *self = GroupClock::start(recorded, now);
    }

    /// Notes a value that this member has recorded itself.
    pub fn note_recorded(&mut self, recorded: i64) {
        self.recorded = self.recorded.max(recorded);
    }

    /// Continues as the clock of a new leader. It stood still during the
    /// `silence` since the last leader was heard of.
    pub fn resume(&mut self, silence: Duration, now: Duration) {
        let heard = now.saturating_sub(silence).max(self.at);
        *self = GroupClock::start(self.at(heard).max(self.recorded), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_clock_stands_still_while_nobody_leads() {
        let mut clock = GroupClock::start(5_000_000, 100 * SECOND);
        assert_eq!(clock.at(103 * SECOND), 8_000_000);
        clock.resume(2 * SECOND, 104 * SECOND);
        assert_eq!(clock.at(105 * SECOND), 8_000_000);
        // A member that was the last leader itself has heard of nobody.
        clock.note_recorded(9_000_000);
        clock.resume(60 * SECOND, 106 * SECOND);
        assert_eq!(clock.at(106 * SECOND), 9_000_000);
    }

    #[test]
    fn a_follower_is_behind_the_leader() {
        let leader = GroupClock::start(0, 10 * SECOND);
        let mut follower = GroupClock::start(50_000_000, SECOND);
        follower.follow(leader.at(12 * SECOND), 13 * SECOND);
        assert_eq!(leader.at(20 * SECOND) - follower.at(20 * SECOND), 1_000_000);
        assert_eq!(follower.when(3_000_000, 13 * SECOND), 14 * SECOND);
        assert_eq!(follower.when(1_000_000, 13 * SECOND), 13 * SECOND);
    }
}
