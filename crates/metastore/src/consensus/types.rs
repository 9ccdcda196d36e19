//! The Raft library's type parameters, and conversions between its log ids and
//! our positions. The library counts entries from 0, we count from 1.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::impls::{BoxedErrorSource, InlineBatch, ProgressResponder};
use openraft::vote::leader_id_std::{CommittedLeaderId, LeaderId};
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};

use super::Position;
use super::membership::MemberRecord;
use super::runtime::Runtime;
use super::snapshot::Staging;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl RaftTypeConfig for Types {
    type D = EntryData;
    /// Answers do not go through the library.
    type R = ();
    type NodeId = u64;
    type Node = MemberRecord;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub type Vote = openraft::Vote<LeaderId<u64, u64>>;
pub type LogId = openraft::LogId<CommittedLeaderId<u64>>;
pub type Payload = EntryPayload<EntryData, u64, MemberRecord>;
pub type Entry = openraft::Entry<CommittedLeaderId<u64>, Payload>;
pub type Membership = openraft::Membership<u64, MemberRecord>;
pub type StoredMembership = openraft::StoredMembership<CommittedLeaderId<u64>, u64, MemberRecord>;
pub type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId<u64>, u64, MemberRecord>;
/// A snapshot that was received; those that are sent have no data.
pub type SnapshotData = Option<Box<dyn Staging>>;
pub type Snapshot = openraft::Snapshot<CommittedLeaderId<u64>, u64, MemberRecord, SnapshotData>;

/// The proposals of one entry.
#[derive(Clone, Debug)]
pub struct EntryData {
    /// The member whose callers wait for the answers; 0 in a group of one, where
    /// it is not stored.
    pub origin: u64,
    /// Identifies the callers at that member; 0 if there are none.
    pub ticket: u64,
    pub proposals: Arc<Vec<Bytes>>,
}

impl fmt::Display for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} proposals", self.proposals.len())
    }
}

impl Position {
    pub(super) fn of(log_id: &LogId) -> Position {
        Position { index: log_id.index + 1, term: log_id.leader_id.term }
    }

    /// Returns `None` before the first entry.
    pub(super) fn log_id(self) -> Option<LogId> {
        let index = self.index.checked_sub(1)?;
        Some(LogId::new(CommittedLeaderId::new(self.term), index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_first_entry_is_our_entry_one() {
        assert_eq!(Position::default().log_id(), None);
        let first = Position { index: 1, term: 7 };
        assert_eq!(first.log_id().map(|id| (id.index, id.leader_id.term)), Some((0, 7)));
        assert_eq!(first.log_id().map(|id| Position::of(&id)), Some(first));
    }
}
