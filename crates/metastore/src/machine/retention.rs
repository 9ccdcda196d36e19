//! Commands about history: etcd's Compact, samples of the group clock and the
//! waterline; and alarms.

use super::run::EntryRun;
use crate::command::{ActiveAlarm, Alarm, AlarmAction};
use crate::error::{Error, Result};
use crate::state::Sample;

impl EntryRun<'_> {
    /// Returns the revision below which etcd's clients cannot read.
    pub fn compacted(&self) -> i64 {
        self.overlay.watermarks.compacted.max(self.overlay.watermarks.waterline)
    }

    pub fn compact(&mut self, revision: i64) -> Result<()> {
        let compacted = self.compacted();
        if revision <= compacted {
            return Err(Error::Compacted { compacted });
        }
        if revision > self.overlay.revision() {
            return Err(Error::FutureRevision);
        }
        self.overlay.watermarks.compacted = revision;
        Ok(())
    }

    /// Records the group clock, which never decreases.
    pub fn record_clock(&mut self, clock_micros: i64) {
        let watermarks = &mut self.overlay.watermarks;
        watermarks.clock_micros = watermarks.clock_micros.max(clock_micros);
        self.leases.apply_clock(watermarks.applied.term, watermarks.clock_micros);
    }

    /// Records the group clock at the present revision.
    pub fn sample(&mut self, clock_micros: i64) {
        self.record_clock(clock_micros);
        let watermarks = &self.overlay.watermarks;
        let sample = Sample {
            revision: watermarks.revision,
            clock_micros: watermarks.clock_micros,
            time_micros: watermarks.time_micros,
            written_bytes: watermarks.written_bytes,
        };
        // A second sample of a revision would only make it look younger.
        if self.newest_sample.is_none_or(|newest| newest.revision < sample.revision) {
            self.overlay.sample = Some(sample);
        }
    }

    pub fn move_waterline(&mut self, revision: i64) -> Result<()> {
        if revision > self.overlay.revision() {
            return Err(Error::FutureRevision);
        }
        let waterline = &mut self.overlay.watermarks.waterline;
        *waterline = revision.max(*waterline);
        Ok(())
    }

    pub fn alarm(&mut self, action: AlarmAction) {
        let mut alarms = self.alarms();
        let (member, alarm) = match action {
            AlarmAction::Activate { member, alarm }
            | AlarmAction::ActivateByHand { member, alarm }
            | AlarmAction::Deactivate { member, alarm } => (member, alarm),
        };
        let by_hand = matches!(action, AlarmAction::ActivateByHand { .. });
        let found = alarms.iter().position(|known| (known.member, known.alarm) == (member, alarm));
        match (action, found) {
            (AlarmAction::Deactivate { .. }, Some(at)) => {
                alarms.remove(at);
            }
            (AlarmAction::Deactivate { .. }, None) => {}
            (_, Some(at)) => alarms[at].by_hand |= by_hand,
            (_, None) => alarms.push(ActiveAlarm { member, alarm, by_hand }),
        }
        self.overlay.alarms = Some(alarms);
    }

    /// Refuses commands that an alarm forbids.
    pub fn check_alarms(&self, takes_space: bool) -> Result<()> {
        let alarms = self.alarms();
        let is_active = |kind: Alarm| alarms.iter().any(|active| active.alarm == kind);
        if is_active(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        if takes_space && is_active(Alarm::NoSpace) { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn alarms(&self) -> Vec<ActiveAlarm> {
        self.overlay.alarms.clone().unwrap_or_else(|| self.overlay.state.active_alarms())
    }
}
