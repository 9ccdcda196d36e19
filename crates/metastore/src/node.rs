//! A member of the metastore, as the services see it.

use std::sync::Arc;

use crate::command::{Alarm, Answer, Command, KeyRange, RangeQuery};
use crate::error::Result;
use crate::lease::Leases;
use crate::state::{Hash, KeyView, RangeSummary};
use crate::watch::Hub;

pub struct Node {}

/// Bytes of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Keys and values as they are now.
    pub live_bytes: i64,
    pub quota_bytes: i64,
    /// On disk and in memory, history included.
    pub stored_bytes: i64,
}

impl Node {
    pub async fn propose(&self, command: Command) -> Result<Answer> {
        let _ = command;
        todo!()
    }

    /// Grants a lease: chooses an id if it is 0, raises a TTL that is too
    /// short. Answers id and TTL.
    pub async fn lease_grant(&self, id: i64, ttl_seconds: i64) -> Result<Answer> {
        let _ = (id, ttl_seconds);
        todo!()
    }

    /// Returns when a read of local state is linearizable.
    pub async fn barrier(&self) -> Result<()> {
        todo!()
    }

    /// The newest revision; a fresh store is at 1.
    pub fn revision(&self) -> i64 {
        todo!()
    }

    /// Reads below this revision are refused to etcd's clients.
    pub fn compacted(&self) -> i64 {
        todo!()
    }

    /// Reads below this revision are refused to everybody.
    pub fn waterline(&self) -> i64 {
        todo!()
    }

    pub fn alarms(&self) -> Vec<(u64, Alarm)> {
        todo!()
    }

    pub fn usage(&self) -> Usage {
        todo!()
    }

    /// Gives the keys of a range to `sink`, as etcd's Range has it. With
    /// `keys_only` the tails have no value.
    pub fn range(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        let _ = (query, sink);
        todo!()
    }

    /// As `range`, down to the waterline.
    pub fn range_retained(
        &self,
        query: &RangeQuery,
        sink: &mut impl FnMut(KeyView<'_>),
    ) -> Result<RangeSummary> {
        let _ = (query, sink);
        todo!()
    }

    /// Keys in a range at a revision (0: the newest).
    pub fn count(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        let _ = (range, revision);
        todo!()
    }

    /// The newest revision at a moment.
    pub fn revision_at(&self, time_micros: i64) -> Result<i64> {
        let _ = time_micros;
        todo!()
    }

    /// 0: at the newest revision.
    pub fn hash(&self, revision: i64) -> Result<Hash> {
        let _ = revision;
        todo!()
    }

    pub fn watch(&self) -> &Arc<Hub> {
        todo!()
    }

    pub fn leases(&self) -> &Leases {
        todo!()
    }
}
