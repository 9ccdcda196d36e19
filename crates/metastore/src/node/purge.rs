//! Drops history on request and reclaims its space before the request returns:
//! etcd's Compact with `physical`.

use std::sync::Arc;

use super::lifecycle::Shared;
use super::reader::offload;
use crate::command::Command;
use crate::error::Result;
use crate::machine::Applier;
use crate::state::MemberState;

/// Drops history below a revision for all clients. Returns once the engine has
/// compacted it away.
pub async fn purge(shared: &Arc<Shared>, revision: i64) -> Result<()> {
    shared.propose(&Command::Waterline { revision }).await?;
    // Do not hold the node itself, which may be closed in the meantime.
    let (state, applier) = (shared.state.clone(), shared.applier.clone());
    // Closing the node waits for this sender to be dropped.
    let work = shared.work.clone();
    // Compaction reads and writes all keys, so it must not block a shared
    // thread.
    let purged = offload(move || {
        let _held = work;
        reclaim(state, applier)
    });
    purged.await
}

fn reclaim(state: Arc<MemberState>, applier: Arc<Applier>) -> Result<()> {
    let (store, tables) = (&state.store(), &state.tables);
    // The waterline takes effect once it is on disk outside the log.
    store.flush(tables.user)?;
    applier.sync_engine_waterline()?;
    for table in [tables.user, tables.changes, tables.time] {
        store.compact(table)?;
    }
    Ok(())
}
