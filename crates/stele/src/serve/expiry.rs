//! The sweep that removes expired backups and tables that were deleted long ago.

use std::time::Duration;

use stele_grpc::offload::Cost;
use stele_tables::Tables;
use tokio::time::{MissedTickBehavior, interval};

use super::shutdown::Phases;

const INTERVAL: Duration = Duration::from_secs(60);
/// It waits for the disk.
const SWEEP: Cost = Cost::Blocking;

/// Sweeps once when the server starts and then regularly, until it shuts down.
pub async fn sweep(tables: Tables, phases: &'static Phases) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
        let sweeping = tables.clone();
        match SWEEP.run(move || sweeping.remove_expired()).await {
            Ok(Ok((0, 0))) => {}
            Ok(Ok((backups, tables))) => {
                tracing::info!(backups, tables, "removed expired backups and deleted tables");
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot remove expired backups and deleted tables now");
            }
            // All threads are busy.
            Err(error) => tracing::debug!(%error, "the sweep of expired backups waits"),
        }
    }
}
