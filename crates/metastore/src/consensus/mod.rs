//! Consensus: proposals become entries of one replicated log, and every member
//! applies the same entries in the same order. The only room that names the
//! Raft library.
//!
//! Follow a proposal: [`Group::propose`] puts it into the queue (`queue`). The
//! group's thread takes all that is queued as one entry (`group`), the Raft
//! library has it appended (`log`), which writes and syncs once for all, and
//! then applied (`apply`) by the [`Machine`], whose answers go straight to the
//! callers. When the machine says that entries are on disk without the log,
//! they are purged from it.
//!
//! Everything of one group runs on one thread of its own: with one voter there
//! is nobody to wait for but the disk, so a hop to another thread would only
//! cost. `docs/format-raft-log.md` has the bytes.

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
    /// Whether somebody waits for the answers here. The effects are the same.
    pub awaited: bool,
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

    /// The group ends: an `apply` that waits for something gives up.
    fn close(&self) {}
}

/// How a group is opened.
#[derive(Clone)]
pub struct Settings {
    /// The directory of the log; made if it is not there.
    pub dir: PathBuf,
    pub world: World,
    /// This member's id: never 0, and the same at every open.
    pub member: u64,
    pub log: LogOptions,
    /// An entry takes no more proposals when it has this many, or these bytes.
    pub entry_proposals_max: usize,
    pub entry_bytes_max: usize,
    /// More than this is not queued: further proposals are refused.
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

/// A look at a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub member: u64,
    /// 0: nobody leads.
    pub leader: u64,
    pub term: u64,
    /// Index of the last entry in the log.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}
