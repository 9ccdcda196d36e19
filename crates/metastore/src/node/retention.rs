//! How much history is kept: by time or by bytes, whichever ends first. Only
//! decisions here; `duties` carries them out.
//!
//! Age is told by the group's own clock, which counts the time that a leader
//! was seen running. It cannot be set, so a wall clock that jumps drops
//! nothing too early.

use std::time::Duration;

use crate::state::{Numbers, Sample};

#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// A revision that was superseded less than this ago is kept, within the
    /// byte budget.
    pub age: Duration,
    /// What was written after the waterline takes at most about so much.
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
    /// After so many bytes a sample is due, whatever the time.
    pub fn sample_bytes(&self) -> i64 {
        (self.bytes_max / 32).max(1)
    }

    /// Where the waterline should be, if further up than it is. `samples` go
    /// from the oldest to the newest.
    pub fn waterline(
        &self,
        numbers: &Numbers,
        samples: &[Sample],
        clock_micros: i64,
    ) -> Option<i64> {
        let age_micros = i64::try_from(self.age.as_micros()).unwrap_or(i64::MAX);
        let old = clock_micros.saturating_sub(age_micros);
        let by_age = samples.iter().rev().find(|sample| sample.clock_micros <= old);
        let much = numbers.written_bytes.saturating_sub(self.bytes_max);
        let by_bytes = samples
            .iter()
            .find(|sample| sample.written_bytes >= much)
            .or(samples.last())
            .filter(|_| self.is_over_budget(numbers, samples));
        let line = by_age.into_iter().chain(by_bytes).map(|sample| sample.revision).max()?;
        (line > numbers.waterline).then_some(line)
    }

    /// Whether the history since the waterline takes too much. The oldest
    /// sample stands for the waterline: those below it are gone.
    pub fn is_over_budget(&self, numbers: &Numbers, samples: &[Sample]) -> bool {
        let since = match samples.first() {
            Some(oldest) if numbers.waterline >= oldest.revision => oldest.written_bytes,
            _ => 0,
        };
        numbers.written_bytes - since > self.bytes_max
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

    fn line(retention: Retention, numbers: Numbers, hour: i64) -> Option<i64> {
        retention.waterline(&numbers, &samples(), hour * HOUR)
    }

    #[test]
    fn what_was_superseded_less_than_a_day_ago_stays() {
        let numbers = Numbers { revision: 50, written_bytes: 500, ..Numbers::default() };
        let day = Retention::default();
        assert_eq!(line(day, numbers, 24), None);
        assert_eq!(line(day, numbers, 25), Some(10));
        assert_eq!(line(day, numbers, 27), Some(30));
        assert_eq!(line(day, Numbers { waterline: 30, ..numbers }, 27), None);
        assert_eq!(line(day, numbers, 1000), Some(40), "no further than the newest sample");
    }

    #[test]
    fn the_byte_budget_comes_before_the_age() {
        let numbers = Numbers { revision: 50, written_bytes: 500, ..Numbers::default() };
        let budget = |bytes_max| Retention { bytes_max, ..Retention::default() };
        assert_eq!(line(budget(500), numbers, 5), None);
        assert_eq!(line(budget(300), numbers, 5), Some(20));
        assert_eq!(line(budget(150), numbers, 5), Some(40));
        assert_eq!(
            line(budget(50), numbers, 5),
            Some(40),
            "the newest sample is the best there is"
        );
    }
}
