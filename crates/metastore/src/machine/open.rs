//! Opens the state of a member.

use std::path::Path;
use std::sync::Arc;

use stele_engine::world::World;
use stele_engine::{Resources, Store};

use super::staging::Home;
use super::{Applier, MachineSettings};
use crate::error::Result;
use crate::lease::Leases;
use crate::state::{Identity, MemberState};
use crate::watch::Hub;

/// The parts of a member's state, which belong together.
pub struct MachineParts {
    pub state: Arc<MemberState>,
    pub hub: Arc<Hub>,
    pub leases: Arc<Leases>,
    pub applier: Arc<Applier>,
}

/// Opens the state in a directory, as of the last flush. A new one gets the
/// identity that `new` returns.
pub fn open(
    dir: &Path,
    settings: MachineSettings,
    world: World,
    new: impl FnOnce() -> Identity,
) -> Result<MachineParts> {
    let MachineSettings { engine, resources, ring_bytes_max, deleted_keys_max, level_spoken } =
        settings;
    let clock = world.clock.clone();
    let resources = resources.unwrap_or_else(|| Resources::new(&engine));
    let home = Home {
        dir: dir.parent().unwrap_or(dir).to_path_buf(),
        engine: engine.clone(),
        resources: resources.clone(),
        world: world.clone(),
        level_spoken,
    };
    let store = Store::open_external_with(dir, engine, world, resources)?;
    // Those that were being sent when the process ended.
    for checkpoint in store.checkpoints()? {
        store.release_checkpoint(checkpoint.id)?;
    }
    let (state, recovered) = MemberState::open(store, new)?;
    let state = Arc::new(state);
    let hub = Arc::new(Hub::new(state.clone(), ring_bytes_max));
    let leases =
        Arc::new(Leases::open(state.clone(), clock.clone(), recovered.watermarks.clock_micros)?);
    let applier = Applier::new(
        home,
        state.clone(),
        hub.clone(),
        leases.clone(),
        clock,
        deleted_keys_max,
        recovered,
    )?;
    Ok(MachineParts { state, hub, leases, applier: Arc::new(applier) })
}
