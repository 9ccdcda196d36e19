//! The settings of a group.

use std::path::PathBuf;

use stele_engine::log::LogOptions;
use stele_engine::world::World;

/// The settings of a group.
#[derive(Clone)]
pub struct GroupSettings {
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

impl GroupSettings {
    pub fn new(dir: PathBuf, world: World, member: u64) -> GroupSettings {
        GroupSettings {
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
