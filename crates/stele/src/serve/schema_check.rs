//! The periodic check of the schemas of tables: what was changed without a call to this
//! server is taken over if it is valid, and ignored otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stele_bigtable::table::Tables;
use stele_grpc::offload::Cost;
use tokio::time::{MissedTickBehavior, interval};

use super::shutdown::Phases;

const INTERVAL: Duration = Duration::from_secs(30);
/// It waits for changes in progress.
const CHECK: Cost = Cost::Blocking;

/// Checks regularly, until the server shuts down. An invalid schema is reported once.
pub async fn check(tables: Arc<Tables>, phases: &'static Phases) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = BTreeSet::new();
    while phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
        let checking = tables.clone();
        // All threads are busy: the next check does it.
        let Ok(invalid) = CHECK.run(move || checking.check_definitions()).await else { continue };
        reported.retain(|name| invalid.iter().any(|(table, _)| table == name));
        for (table, error) in invalid {
            if reported.insert(table.clone()) {
                tracing::warn!(table, %error, "ignoring an invalid schema: the table keeps the last valid one");
            }
        }
    }
}
