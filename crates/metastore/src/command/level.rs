//! Feature levels. A command that older versions do not know may be proposed
//! only once the group has reached the command's level, which an operator
//! raises when every member speaks it (docs/metastore-upgrades.md).

use super::Command;
use crate::error::{Error, Result};

/// The level of a group in which nothing has been raised: all commands that
/// versions without levels know.
pub const LEVEL_BASE: u32 = 1;
/// From this level on, the state has hashes of its buckets and quotas of
/// prefixes, and a backup can be restored with its history.
pub const LEVEL_OF_HASHES: u32 = 2;
/// From this level on, the deadlines of leases are recorded in the log.
pub const LEVEL_OF_DEADLINES: u32 = 3;
/// The level that this version speaks.
pub const LEVEL_MAX: u32 = 3;

impl Command {
    /// Returns the lowest level at which the command may be proposed.
    pub fn level(&self) -> u32 {
        match self {
            Command::SetQuota { .. } | Command::RestoreHistory(_) => LEVEL_OF_HASHES,
            Command::LeaseDeadlines { .. } => LEVEL_OF_DEADLINES,
            _ => LEVEL_BASE,
        }
    }
}

/// Refuses a level that this version does not speak.
pub fn check_level(level: u32) -> Result<()> {
    check_level_of(level, LEVEL_MAX)
}

/// Refuses a level that a member does not speak.
pub fn check_level_of(level: u32, spoken: u32) -> Result<()> {
    if (LEVEL_BASE..=spoken).contains(&level) {
        return Ok(());
    }
    Err(Error::UnknownLevel { level, known: spoken })
}
