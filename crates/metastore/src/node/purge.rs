//! History that is dropped at somebody's word, and its space given back before
//! that somebody is answered: etcd's Compact with `physical`.

use std::sync::Arc;

use super::Shared;
use crate::command::Command;
use crate::error::{Error, Result};

/// Drops history below a revision for everybody. Returns when the engine has
/// merged it away.
pub async fn purge(shared: &Arc<Shared>, revision: i64) -> Result<()> {
    shared.propose(&Command::Waterline { revision }).await?;
    let shared = shared.clone();
    // Merging reads and writes all keys: not in a thread that others wait for.
    let purged = tokio::task::spawn_blocking(move || give_back(&shared)).await;
    purged.map_err(|error| Error::Internal(format!("the purge ended early: {error}")))?
}

fn give_back(shared: &Shared) -> Result<()> {
    let (store, tables) = (&shared.state.store, &shared.state.tables);
    // The line counts once it is on disk without the log.
    store.flush(tables.user)?;
    shared.applier.settle_waterline()?;
    for table in [tables.user, tables.changes, tables.time] {
        store.compact(table)?;
    }
    Ok(())
}
