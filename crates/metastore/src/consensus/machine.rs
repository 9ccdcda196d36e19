//! The state machine that a group drives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::GroupStatus;
use super::incoming;
use super::snapshot::{Checkpoint, SnapshotFile, Staging};
use crate::error::Error;

/// A position in the log. The first entry has index 1; the default precedes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub index: u64,
    pub term: u64,
}

/// A committed entry with its proposals.
#[derive(Clone, Debug)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty in Raft's own entries.
    pub proposals: Vec<Bytes>,
    /// Whether a caller of this member waits for the answers. The effects are
    /// the same.
    pub awaited: bool,
}

/// The state machine that entries are applied to.
pub trait Machine: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// Applies an entry and returns one answer per proposal, in order. Entries
    /// arrive in order, each once, from one thread at a time. An entry without
    /// proposals still advances `applied`. An error stops the group.
    fn apply(&self, entry: Committed) -> Result<Vec<Self::Answer>, Error>;

    /// Returns the last entry applied, which is stored together with its
    /// effects.
    fn applied(&self) -> Position;

    /// Returns the index up to which everything is on disk outside the log.
    fn flushed(&self) -> u64;

    /// Answers a question of another member, as the leader. `asked` is when it
    /// was received, by the monotonic clock. `None` if an entry has to be applied
    /// before; the question is then put again.
    fn ask(&self, _question: Bytes, _asked: Duration) -> Option<Bytes> {
        Some(Bytes::new())
    }

    /// Answers a question of another member about this one. `group` is the
    /// progress of this member.
    fn inquire(&self, _question: Bytes, _group: GroupStatus) -> Bytes {
        Bytes::new()
    }

    /// Keeps the state as of the last entry that is on disk, to be sent to other
    /// members.
    fn checkpoint(&self) -> Result<Arc<dyn Checkpoint>, Error> {
        incoming::unsupported()
    }

    /// Prepares to receive the state of another member.
    fn receive(
        self: Arc<Self>,
        _description: Bytes,
        _files: Vec<SnapshotFile>,
    ) -> Result<Box<dyn Staging>, Error> {
        incoming::unsupported()
    }

    /// Removes what an installed state has replaced. Called now and then.
    fn tidy(&self) {}

    /// Called when the group closes: an `apply` that is blocked must give up.
    fn close(&self) {}
}
