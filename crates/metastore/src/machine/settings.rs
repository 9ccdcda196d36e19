//! The settings of a member's state.

use stele_engine::{Options, Resources};

use crate::command::{LEVEL_MAX, ROW_BYTES_MAX};

/// The settings of a member's state.
#[derive(Clone)]
pub struct MachineSettings {
    pub engine: Options,
    /// Memory shared with other stores; with `None` the store creates its own.
    pub resources: Option<Resources>,
    /// The maximum size of the recent changes that are kept for watchers.
    pub ring_bytes_max: usize,
    /// The maximum number of keys that one range may delete, because their
    /// deletions are one commit. Must be the same on all members, which have to
    /// decide alike.
    pub deleted_keys_max: i64,
    /// The highest feature level that this member speaks. A lower one than that of this
    /// version is for tests of upgrades.
    pub level_spoken: u32,
}

impl Default for MachineSettings {
    fn default() -> MachineSettings {
        let mut engine = Options::default();
        // A key may be as long as a request; the rows of leases have an id
        // before it.
        engine.limits.row_bytes_max = ROW_BYTES_MAX;
        // Everything in the log must fit: the deletions of a large range, or of
        // all keys of a lease.
        engine.limits.commit_bytes_max = 3 << 30;
        // A restart replays what was not flushed.
        engine.flush.replay_bytes_max = 64 << 20;
        // Conflicts are decided by log order, not by the engine.
        engine.memory.conflict_slots = 16;
        MachineSettings {
            engine,
            resources: None,
            ring_bytes_max: 32 << 20,
            deleted_keys_max: 2_000_000,
            level_spoken: LEVEL_MAX,
        }
    }
}
