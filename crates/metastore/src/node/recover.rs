//! Recovery of a group that has lost its quorum, offline: one surviving member
//! becomes the only voter of a new cluster.

use std::path::Path;
use std::sync::Arc;

use stele_engine::world::World;

use crate::consensus::{GroupSettings, Position, RaftLog};
use crate::error::{Error, Result};
use crate::machine::{self, MachineParts, MachineSettings};
use crate::state::Identity;

/// What a member has, and what of it the group may not have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub identity: Identity,
    /// The last entry whose effects are on disk, and its revision.
    pub applied: Position,
    pub revision: i64,
    /// The last entry of the log. Entries after `applied` are applied when the
    /// member starts, though a majority may not have had them.
    pub last: Position,
    /// The members of the group as this member knows them.
    pub voters: Vec<u64>,
    /// The id of the new cluster, once the member has been recovered.
    pub new_cluster_id: Option<u64>,
}

impl Recovery {
    /// Returns the number of entries that the state does not have yet.
    pub fn entries_not_applied(&self) -> u64 {
        self.last.index.saturating_sub(self.applied.index)
    }
}

/// Returns the owner of a directory; `None` if nothing has been stored there.
pub fn stored_identity(dir: &Path, world: World) -> Result<Option<Identity>> {
    if !machine::state_dir(&*world.files, dir)?.is_dir() {
        return Ok(None);
    }
    inspect_member(dir, world).map(|found| Some(found.identity))
}

/// Reads what the member in a directory has. Changes neither its log nor its
/// state.
pub fn inspect_member(dir: &Path, world: World) -> Result<Recovery> {
    let (recovery, ..) = open(dir, world)?;
    Ok(recovery)
}

/// Makes the member in a directory the only voter of a new cluster. Everything
/// in its log is kept. If it is interrupted, it can be run again.
pub fn recover_member(dir: &Path, world: World) -> Result<Recovery> {
    let new_id = world.random.next_u64().max(1);
    let (mut recovery, parts, log) = open(dir, world)?;
    log.become_only_voter(recovery.identity.member_id)?;
    let identity = Identity { cluster_id: new_id, ..recovery.identity };
    parts.state.tables.set_identity(&parts.state.store(), identity)?;
    recovery.new_cluster_id = Some(new_id);
    Ok(recovery)
}

fn open(dir: &Path, world: World) -> Result<(Recovery, MachineParts, RaftLog)> {
    let state_dir = machine::state_dir(&*world.files, dir)?;
    if !state_dir.is_dir() {
        return Err(Error::Config(format!(
            "{} has no metastore: name the data directory of a member",
            dir.display()
        )));
    }
    let unknown = || Identity { cluster_id: 0, member_id: 0 };
    let parts = machine::open(&state_dir, MachineSettings::default(), world.clone(), unknown)?;
    let identity = parts.state.identity;
    let (watermarks, _) = parts.applier.history();
    let settings = GroupSettings::new(dir.join("log"), world, identity.member_id);
    let log = RaftLog::open(&settings, watermarks.applied, Arc::default())?;
    let last = log.last();
    let recovery = Recovery {
        identity,
        applied: watermarks.applied,
        revision: watermarks.revision,
        last,
        voters: log.voters_at(last.index),
        new_cluster_id: None,
    };
    Ok((recovery, parts, log))
}
