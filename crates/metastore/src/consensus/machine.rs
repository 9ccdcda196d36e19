//! The state machine that a group drives.

use std::time::Duration;

use bytes::Bytes;

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

    /// Called when the group closes: an `apply` that is blocked must give up.
    fn close(&self) {}
}
