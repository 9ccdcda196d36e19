//! What a member reports about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use super::lifecycle::Node;
use crate::command::Alarm;
use crate::error::Result;
use crate::histogram::Histogram;
use crate::state::{Identity, Quotas};

/// The size of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the current keys and values.
    pub live_bytes: i64,
    /// 0 means no quota.
    pub quota_bytes: i64,
    /// Bytes on disk and in memory, including history.
    pub stored_bytes: i64,
}

/// The identity of this member and the progress of its group. Read for the
/// header of every response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub cluster_id: u64,
    pub member_id: u64,
    /// 0 if there is no leader.
    pub leader_id: u64,
    pub term: u64,
    /// Indexes of log entries.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}

/// How far back history can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    pub oldest_revision: i64,
    /// The time of that revision; `None` if nothing was written since.
    pub oldest_micros: Option<i64>,
}

/// Counts of backups since the member was opened.
#[derive(Debug, Default)]
pub struct BackupCounts {
    pub done: AtomicU64,
    pub failed: AtomicU64,
    /// The revision and the time of the last one.
    pub last_revision: AtomicI64,
    pub last_micros: AtomicI64,
    /// Held while a backup is taken.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Node {
    /// Returns how far back history can be read.
    pub fn history_reach(&self) -> Result<History> {
        let state = &self.shared.state;
        let oldest_revision = state.waterline().max(1);
        // The change of the oldest revision itself may have been dropped.
        let oldest = state.time_of(oldest_revision)?;
        let oldest_micros = match oldest {
            Some(micros) => Some(micros),
            None => state.time_of(oldest_revision + 1)?,
        };
        Ok(History { oldest_revision, oldest_micros })
    }

    /// Returns the feature level of the group.
    pub fn level(&self) -> u32 {
        self.shared.state.level()
    }

    pub fn quotas(&self) -> Arc<Quotas> {
        self.shared.state.quotas().unwrap_or_default()
    }

    /// Returns the number of requests that took longer than the configured time.
    pub fn slow_requests(&self) -> u64 {
        self.shared.slow.count()
    }

    pub fn backups(&self) -> &BackupCounts {
        &self.shared.backups
    }

    pub fn status(&self) -> Status {
        let Identity { cluster_id, member_id } = self.shared.state.identity;
        let group = self.shared.group.status();
        Status {
            cluster_id,
            member_id,
            leader_id: group.leader,
            term: group.term,
            last: group.last,
            committed: group.committed,
            applied: group.applied,
        }
    }

    /// Returns the newest revision; a fresh store is at 1.
    pub fn revision(&self) -> i64 {
        self.shared.state.revision()
    }

    /// Returns the compacted revision, below which etcd's clients cannot read;
    /// -1 before the first Compact.
    pub fn compacted(&self) -> i64 {
        self.shared.state.compacted()
    }

    /// Returns the waterline, the revision below which nobody can read.
    pub fn waterline(&self) -> i64 {
        self.shared.state.waterline()
    }

    pub fn alarms(&self) -> Vec<(u64, Alarm)> {
        self.shared.state.alarms()
    }

    pub fn usage(&self) -> Usage {
        let stats = self.shared.state.store().stats();
        let stored = stats.fragment_bytes.saturating_add(stats.memory_used_bytes as u64);
        Usage {
            live_bytes: self.shared.state.live_bytes(),
            quota_bytes: self.shared.settings.quota_bytes,
            stored_bytes: i64::try_from(stored).unwrap_or(i64::MAX),
        }
    }

    /// Returns how long entries took to apply.
    pub fn apply_times(&self) -> &Histogram {
        self.shared.applier.apply_times()
    }
}
