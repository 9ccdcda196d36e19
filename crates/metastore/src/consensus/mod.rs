//! Consensus: proposals become entries of one replicated log, and every member
//! applies the same entries in the same order. The only module that uses the
//! Raft library.
//!
//! [`Group::propose`] adds a proposal to the queue (`queue`). The group's
//! thread takes all queued proposals as one entry (`group`). The Raft library
//! appends the entry with one write and one sync (`log`) and then has the
//! [`Machine`] apply it (`apply`); the machine's answers go directly to the
//! callers. Entries are purged from the log once the machine reports that they
//! are on disk outside it.
//!
//! Each group runs on a single thread of its own: with one voter there is
//! nothing to wait for but the disk, so switching threads would only add cost.
//! `docs/format-raft-log.md` specifies the format.

mod apply;
mod entries;
mod group;
mod head;
mod log;
mod network;
mod queue;
mod record;
mod replay;
mod types;

use std::path::PathBuf;

use bytes::Bytes;
pub use group::Group;
use stele_engine::log::LogOptions;
use stele_engine::world::World;

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

    /// Called when the group closes: an `apply` that is blocked must give up.
    fn close(&self) {}
}

/// The settings of a group.
#[derive(Clone)]
pub struct Settings {
    /// The directory of the log; created if it does not exist.
    pub dir: PathBuf,
    pub world: World,
    /// This member's id: never 0, and the same at every open.
    pub member: u64,
    pub log: LogOptions,
    /// The limits of an entry in proposals and bytes.
    pub entry_proposals_max: usize,
    pub entry_bytes_max: usize,
    /// The limits of the queue; further proposals are refused.
    pub queue_proposals_max: usize,
    pub queue_bytes_max: usize,
}

impl Settings {
    pub fn new(dir: PathBuf, world: World, member: u64) -> Settings {
        Settings {
            dir,
            world,
            member,
            log: LogOptions { segment_bytes: 16 << 20, ..LogOptions::default() },
            entry_proposals_max: 4096,
            entry_bytes_max: 4 << 20,
            queue_proposals_max: 50_000,
            queue_bytes_max: 128 << 20,
        }
    }
}

/// The progress of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub member: u64,
    /// 0 if there is no leader.
    pub leader: u64,
    pub term: u64,
    /// Index of the last entry in the log.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}
