//! Commands about history: etcd's Compact, samples of the group clock and the
//! waterline; and alarms.

use super::Running;
use crate::command::{Alarm, AlarmAction};
use crate::error::{Error, Result};
use crate::state::Sample;

impl Running<'_> {
    /// Returns the revision below which etcd's clients cannot read.
    pub fn compacted(&self) -> i64 {
        self.batch.numbers.compacted.max(self.batch.numbers.waterline)
    }

    pub fn compact(&mut self, revision: i64) -> Result<()> {
        let compacted = self.compacted();
        if revision <= compacted {
            return Err(Error::Compacted { compacted });
        }
        if revision > self.batch.revision() {
            return Err(Error::FutureRevision);
        }
        self.batch.numbers.compacted = revision;
        Ok(())
    }

    /// Records the group clock, which never decreases.
    pub fn sample(&mut self, clock_micros: i64) {
        let numbers = &mut self.batch.numbers;
        numbers.clock_micros = numbers.clock_micros.max(clock_micros);
        let sample = Sample {
            revision: numbers.revision,
            clock_micros: numbers.clock_micros,
            time_micros: numbers.time_micros,
            written_bytes: numbers.written_bytes,
        };
        // A second sample of a revision would only make it look younger.
        if self.newest_sample.is_none_or(|newest| newest.revision < sample.revision) {
            self.batch.sample = Some(sample);
        }
    }

    pub fn move_waterline(&mut self, revision: i64) -> Result<()> {
        if revision > self.batch.revision() {
            return Err(Error::FutureRevision);
        }
        let waterline = &mut self.batch.numbers.waterline;
        *waterline = revision.max(*waterline);
        Ok(())
    }

    pub fn alarm(&mut self, action: AlarmAction) {
        let mut alarms = self.alarms();
        match action {
            AlarmAction::Activate { member, alarm } => {
                if !alarms.contains(&(member, alarm)) {
                    alarms.push((member, alarm));
                }
            }
            AlarmAction::Deactivate { member, alarm } => {
                alarms.retain(|&known| known != (member, alarm));
            }
        }
        self.batch.alarms = Some(alarms);
    }

    /// Refuses commands that an alarm forbids.
    pub fn check_alarms(&self, takes_space: bool) -> Result<()> {
        let alarms = self.alarms();
        let stands = |wanted: Alarm| alarms.iter().any(|(_, alarm)| *alarm == wanted);
        if stands(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        if takes_space && stands(Alarm::NoSpace) { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn alarms(&self) -> Vec<(u64, Alarm)> {
        self.batch.alarms.clone().unwrap_or_else(|| self.batch.state.alarms())
    }
}
