//! Consensus: proposals become entries of one log, applied in order.

use bytes::Bytes;

use crate::error::Error;

/// A place in the log: the first entry has index 1. The default is before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub index: u64,
    pub term: u64,
}

/// One committed entry: the proposals that were gathered into it.
#[derive(Clone, Debug)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// None in entries that are Raft's own.
    pub proposals: Vec<Bytes>,
}

/// What entries are applied to.
pub trait Machine: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// Applies an entry. They come in order, each once, by one thread at a
    /// time. One answer for each proposal, in order. An entry without
    /// proposals still moves `applied`. An error stops the group.
    fn apply(&self, entry: Committed) -> Result<Vec<Self::Answer>, Error>;

    /// The last entry applied; stored together with its effects.
    fn applied(&self) -> Position;

    /// Everything up to this index is on disk without the log.
    fn flushed(&self) -> u64;
}
