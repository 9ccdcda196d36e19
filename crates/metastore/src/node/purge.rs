//! History that is dropped at somebody's word, and its space given back before
//! that somebody is answered: etcd's Compact with `physical`.

use std::sync::Arc;

use super::Shared;
use crate::command::Command;
use crate::error::Result;
use crate::machine::Applier;
use crate::state::State;

/// Drops history below a revision for everybody. Returns when the engine has
/// merged it away.
pub async fn purge(shared: &Arc<Shared>, revision: i64) -> Result<()> {
    shared.propose(&Command::Waterline { revision }).await?;
    // Not the node itself, which may be closed while this goes on.
    let (state, applier) = (shared.state.clone(), shared.applier.clone());
    // Whoever closes the node waits for this.
    let work = shared.work.clone();
    // Merging reads and writes all keys: not in a thread that others wait for.
    let purged = super::offload(move || {
        let _held = work;
        give_back(state, applier)
    });
    purged.await
}

fn give_back(state: Arc<State>, applier: Arc<Applier>) -> Result<()> {
    let (store, tables) = (&state.store, &state.tables);
    // The line counts once it is on disk without the log.
    store.flush(tables.user)?;
    applier.settle_waterline()?;
    for table in [tables.user, tables.changes, tables.time] {
        store.compact(table)?;
    }
    Ok(())
}
