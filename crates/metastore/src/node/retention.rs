//! The retention policy of history: by age or by bytes, whichever limit is
//! reached first. Only decides; `duties` carries it out.
//!
//! Age is measured by the group clock, which counts the time during which a
//! leader was running. It cannot be set, so a jump of the wall clock never
//! drops history too early.

use std::time::Duration;

use crate::state::{Sample, Watermarks};

/// How much history is retained.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// A revision that was superseded more recently than this is kept, within
    /// the byte budget.
    pub age: Duration,
    /// The approximate limit on bytes written after the waterline.
    pub bytes_max: i64,
    /// How often the waterline moves.
    pub waterline_every: Duration,
    /// How often the clock is sampled, if anything changed.
    pub sample_every: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            age: Duration::from_secs(24 * 3600),
            bytes_max: 4 << 30,
            waterline_every: Duration::from_secs(3600),
            sample_every: Duration::from_secs(60),
        }
    }
}

impl Retention {
    /// Returns the policy with another age. The waterline then moves every 1/24
    /// of the age, but at least every second and no less often than before.
    pub fn of_age(self, age: Duration) -> Retention {
        let waterline_every = (age / 24).clamp(Duration::from_secs(1), self.waterline_every);
        let sample_every = self.sample_every.min(waterline_every);
        Retention { age, waterline_every, sample_every, ..self }
    }

    /// The number of written bytes after which a sample is due regardless of
    /// time.
    pub fn sample_bytes(&self) -> i64 {
        (self.bytes_max / 32).max(1)
    }

    /// Returns the new waterline if it is above the current one. `samples` are
    /// sorted from the oldest to the newest.
    pub fn waterline(
        &self,
        watermarks: &Watermarks,
        samples: &[Sample],
        clock_micros: i64,
    ) -> Option<i64> {
        let age_micros = i64::try_from(self.age.as_micros()).unwrap_or(i64::MAX);
        let old = clock_micros.saturating_sub(age_micros);
        let by_age = samples.iter().rev().find(|sample| sample.clock_micros <= old);
        let much = watermarks.written_bytes.saturating_sub(self.bytes_max);
        let by_bytes = samples
            .iter()
            .find(|sample| sample.written_bytes >= much)
            .or(samples.last())
            .filter(|_| self.is_over_budget(watermarks, samples));
        let line = by_age.into_iter().chain(by_bytes).map(|sample| sample.revision).max()?;
        (line > watermarks.waterline).then_some(line)
    }

    /// Returns whether the history since the waterline exceeds the byte budget.
    /// The oldest sample stands for the waterline, because older samples have
    /// been removed. A waterline that was set by request lies between samples;
    /// the error is smaller than the distance between two samples.
    pub fn is_over_budget(&self, watermarks: &Watermarks, samples: &[Sample]) -> bool {
        let since = match samples.first() {
            _ if watermarks.waterline < 0 => 0,
            Some(oldest) => oldest.written_bytes,
            None => watermarks.written_bytes,
        };
        watermarks.written_bytes - since > self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn samples() -> Vec<Sample> {
        let at = |revision, hour: i64, written_bytes| Sample {
            revision,
            clock_micros: hour * HOUR,
            time_micros: 0,
            written_bytes,
        };
        vec![at(10, 1, 100), at(20, 2, 200), at(30, 3, 300), at(40, 4, 400)]
    }

    fn line(retention: Retention, watermarks: Watermarks, hour: i64) -> Option<i64> {
        retention.waterline(&watermarks, &samples(), hour * HOUR)
    }

    #[test]
    fn what_was_superseded_less_than_a_day_ago_stays() {
        let watermarks = Watermarks { revision: 50, written_bytes: 500, ..Watermarks::default() };
        let day = Retention::default();
        assert_eq!(line(day, watermarks, 24), None);
        assert_eq!(line(day, watermarks, 25), Some(10));
        assert_eq!(line(day, watermarks, 27), Some(30));
        assert_eq!(line(day, Watermarks { waterline: 30, ..watermarks }, 27), None);
        assert_eq!(line(day, watermarks, 1000), Some(40), "no further than the newest sample");
    }

    #[test]
    fn what_was_written_before_a_line_between_samples_is_not_history() {
        let watermarks =
            Watermarks { revision: 50, waterline: 35, written_bytes: 500, ..Watermarks::default() };
        let budget = Retention { bytes_max: 150, ..Retention::default() };
        assert_eq!(budget.waterline(&watermarks, &samples()[3..], 5 * HOUR), None);
        assert_eq!(budget.waterline(&watermarks, &[], 5 * HOUR), None);
        let much = Watermarks { written_bytes: 551, ..watermarks };
        assert_eq!(budget.waterline(&much, &samples()[3..], 5 * HOUR), Some(40));
    }

    #[test]
    fn the_line_of_a_short_history_moves_more_often() {
        let retention = Retention::default().of_age(Duration::from_secs(240));
        let every = (retention.waterline_every.as_secs(), retention.sample_every.as_secs());
        assert_eq!((retention.age.as_secs(), every), (240, (10, 10)));
        let week = Retention::default().of_age(Duration::from_secs(7 * 24 * 3600));
        assert_eq!((week.waterline_every.as_secs(), week.sample_every.as_secs()), (3600, 60));
    }

    #[test]
    fn the_byte_budget_comes_before_the_age() {
        let watermarks = Watermarks { revision: 50, written_bytes: 500, ..Watermarks::default() };
        let budget = |bytes_max| Retention { bytes_max, ..Retention::default() };
        assert_eq!(line(budget(500), watermarks, 5), None);
        assert_eq!(line(budget(300), watermarks, 5), Some(20));
        assert_eq!(line(budget(150), watermarks, 5), Some(40));
        assert_eq!(
            line(budget(50), watermarks, 5),
            Some(40),
            "the newest sample is the best there is"
        );
    }
}
