//! The quota on the size of the data, and the alarm that is raised when it is
//! reached.

use bytes::Bytes;

use super::lifecycle::Shared;
use crate::command::{ActiveAlarm, Alarm, AlarmAction, Command, Op, Txn, within};
use crate::error::{Error, Result};
use crate::machine::takes_space;

impl Shared {
    /// Refuses a command that exceeds the quota, and raises the alarm.
    pub(super) async fn check_quota(&self, command: &Command) -> Result<()> {
        if !takes_space(command) {
            return Ok(());
        }
        if self.state.has_alarm(Alarm::NoSpace) {
            return Err(Error::NoSpace);
        }
        let quota_bytes = self.settings.quota_bytes;
        if quota_bytes <= 0 || self.state.live_bytes() + cost_bytes(command) <= quota_bytes {
            return Ok(());
        }
        let member = self.state.identity.member_id;
        let activate = AlarmAction::Activate { member, alarm: Alarm::NoSpace };
        self.propose(&Command::Alarm(activate)).await?;
        Err(Error::NoSpace)
    }

    /// Limits the number of alarms, because all of them are stored in one
    /// value.
    pub(super) fn check_alarm(&self, command: &Command) -> Result<()> {
        const ALARMS_MAX: usize = 1000;
        let Command::Alarm(
            AlarmAction::Activate { member, alarm } | AlarmAction::ActivateByHand { member, alarm },
        ) = command
        else {
            return Ok(());
        };
        let active = self.state.alarms();
        if active.contains(&(*member, *alarm)) {
            return Ok(());
        }
        within("alarms", active.len() + 1, ALARMS_MAX)
    }

    /// Returns whether this member's alarm can be cleared. One that an operator
    /// raised cannot.
    pub(super) fn can_clear_alarm(&self) -> bool {
        let mine = |active: &ActiveAlarm| {
            active.member == self.state.identity.member_id
                && active.alarm == Alarm::NoSpace
                && !active.by_hand
        };
        let low_water = self.settings.quota_bytes / 10 * 9;
        self.state.has_alarm(Alarm::NoSpace)
            && self.state.active_alarms().iter().any(mine)
            && self.state.live_bytes() <= low_water
    }
}

/// Returns an upper bound on the bytes that a command adds, computed as etcd
/// does.
fn cost_bytes(command: &Command) -> i64 {
    const PUT_BYTES: usize = 256;
    const LEASE_BYTES: usize = 64;
    fn of_put(key: &Bytes, value: Option<&Bytes>) -> usize {
        key.len() + value.map_or(0, Bytes::len) + PUT_BYTES
    }
    fn of_txn(txn: &Txn) -> usize {
        let of_ops = |ops: &[Op]| {
            ops.iter()
                .map(|op| match op {
                    Op::Put(put) => of_put(&put.key, put.value.as_ref()),
                    Op::Txn(txn) => of_txn(txn),
                    Op::Range(_) | Op::Delete(_) => 0,
                })
                .sum::<usize>()
        };
        of_ops(&txn.success).max(of_ops(&txn.failure))
    }
    let bytes = match command {
        Command::Put(put) => of_put(&put.key, put.value.as_ref()),
        Command::Txn(txn) => of_txn(txn),
        Command::LeaseGrant { .. } | Command::Acquire(_) => LEASE_BYTES,
        Command::Execute(execute) => {
            let puts = execute.writes.iter().filter(|write| write.value.is_some());
            puts.map(|write| of_put(&write.key, write.value.as_ref())).sum()
        }
        _ => 0,
    };
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
