//! Runs the proposals of an entry, one after another. The other files of this
//! folder implement the commands.

use super::overlay::Overlay;
use crate::command::{Answer, Command, Op, Proposal, Reply, Txn};
use crate::error::Result;
use crate::lease::Leases;
use crate::state::{Growth, Sample};

/// The run of an entry's proposals.
pub(crate) struct EntryRun<'a> {
    pub overlay: Overlay<'a>,
    pub leases: &'a Leases,
    pub deleted_keys_max: i64,
    pub newest_sample: Option<Sample>,
    /// The version of the proposal, which selects the rules.
    pub version: u8,
    /// Whether a caller waits for the answers.
    pub awaited: bool,
    /// Bytes that the current transaction returns, and of the values that it
    /// keeps, as far as they have been checked.
    pub result_bytes: usize,
    /// The number of keys in ranges that compares may still read.
    pub compared_left: usize,
    /// What the current proposal adds to the usage of prefixes with quotas.
    pub quota_growth: Growth,
}

impl EntryRun<'_> {
    /// Runs one proposal.
    pub(super) fn run(&mut self, proposal: &Proposal) -> Result<Answer> {
        self.overlay.begin(proposal.time_micros)?;
        (self.version, self.result_bytes) = (proposal.version, 0);
        self.check_caller(proposal.caller.as_ref(), &proposal.command)?;
        self.quota_growth.clear();
        let reply = self.dispatch(&proposal.command)?;
        Ok(Answer { revision: self.overlay.revision(), reply })
    }

    fn dispatch(&mut self, command: &Command) -> Result<Reply> {
        let is_checked = !matches!(
            command,
            Command::Alarm(_)
                | Command::Sample { .. }
                | Command::LeaseDeadlines { .. }
                | Command::Auth(_)
        );
        if is_checked {
            self.check_alarms(takes_space(command))?;
        }
        match command {
            Command::Put(put) => self.put(put).map(Reply::Put),
            Command::Delete(delete) => self.delete(delete).map(Reply::Delete),
            Command::Txn(txn) => self.txn(txn).map(Reply::Txn),
            Command::Compact { revision } => self.compact(*revision).map(done),
            Command::LeaseGrant { id, ttl_seconds } => self.grant_lease(*id, *ttl_seconds),
            Command::LeaseRevoke { id } => self.revoke_lease(*id).map(done),
            Command::Expire { ids } => self.expire(ids).map(done),
            Command::Alarm(action) => {
                self.alarm(*action);
                Ok(Reply::Done)
            }
            Command::Execute(execute) => self.execute(execute).map(|()| Reply::Execute),
            Command::Acquire(acquire) => self.acquire(acquire).map(Reply::Acquire),
            Command::Release { key, session, call_id } => {
                self.release(key, *session, *call_id).map(done)
            }
            Command::Sample { clock_micros } => {
                self.sample(*clock_micros);
                Ok(Reply::Done)
            }
            Command::Waterline { revision } => self.move_waterline(*revision).map(done),
            Command::Restore(restore) => self.restore(restore).map(done),
            Command::Auth(command) => self.change_auth(command).map(done),
            Command::RaiseLevel { level } => self.raise_level(*level).map(done),
            Command::SetQuota { prefix, quota } => self.set_quota(prefix, *quota).map(done),
            Command::RestoreHistory(history) => self.restore_history(history).map(done),
            Command::LeaseDeadlines { clock_micros, deadlines } => {
                self.record_deadlines(*clock_micros, deadlines).map(done)
            }
        }
    }
}

fn done((): ()) -> Reply {
    Reply::Done
}

/// Returns whether a command is refused under the no-space alarm.
pub fn takes_space(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::LeaseGrant { .. } | Command::Acquire(_) => true,
        Command::Txn(txn) => puts(txn),
        Command::Execute(execute) => execute.writes.iter().any(|write| write.value.is_some()),
        _ => false,
    }
}

fn puts(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        Op::Put(_) => true,
        Op::Txn(txn) => puts(txn),
        Op::Range(_) | Op::Delete(_) => false,
    })
}
