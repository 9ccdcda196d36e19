//! The feature level of the group: raised on request, when all members speak
//! the new one.

use super::lifecycle::{Node, Shared};
use crate::command::{Command, LEVEL_BASE, check_level, check_level_of};
use crate::error::{Error, Result};
use crate::state::Watermarks;

impl Node {
    /// Returns the highest level that this member speaks.
    pub fn level_spoken(&self) -> u32 {
        self.shared.settings.machine.level_spoken
    }

    /// Raises the level once all members have answered that they speak it.
    pub async fn raise_level_of_group(&self, level: u32) -> Result<()> {
        let mut others = Vec::new();
        for member in self.cluster_status().await {
            if member.member_id == self.shared.state.identity.member_id {
                continue;
            }
            if !member.error.is_empty() {
                return Err(Error::Config(format!(
                    "cannot raise the feature level to {level}: member {:x} does not answer \
                     whether it speaks it: {}",
                    member.member_id, member.error
                )));
            }
            others.push((member.member_id, member.level_spoken));
        }
        self.raise_level(level, &others).await
    }

    /// Raises the level. `others` are the other members and the levels that they
    /// speak; a member that does not speak the new level would stop.
    pub async fn raise_level(&self, level: u32, others: &[(u64, u32)]) -> Result<()> {
        check_level_of(level, self.level_spoken())?;
        if let Some((member, speaks)) = others.iter().find(|(_, speaks)| *speaks < level) {
            return Err(Error::Config(format!(
                "cannot raise the feature level to {level}: member {member:x} speaks only level \
                 {speaks}; upgrade it first"
            )));
        }
        self.shared.propose(&Command::RaiseLevel { level }).await.map(drop)
    }
}

impl Shared {
    /// Raises the level of a store that nothing has been written to, since no
    /// older version needs to read it.
    pub(super) async fn raise_level_of_new(&self) -> Result<()> {
        let level = self.settings.level_at_creation;
        check_level(level)?;
        let new = self.state.revision() == Watermarks::default().revision;
        if !new || self.state.level() > LEVEL_BASE || level == LEVEL_BASE {
            return Ok(());
        }
        match self.propose(&Command::RaiseLevel { level }).await {
            // The leader does it.
            Err(
                Error::NotLeader
                | Error::NoLeader
                | Error::LeaderChanged
                | Error::LeaderFailed
                | Error::ConnectionLost
                | Error::Timeout,
            ) => Ok(()),
            raised => raised.map(drop),
        }
    }
}
