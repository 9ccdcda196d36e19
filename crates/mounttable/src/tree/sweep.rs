//! The sweeper: goes over all rows slowly and clears away what nobody visits,
//! so that it does not count against its owner for ever.

use std::sync::Arc;
use std::time::Duration;

use super::Mounttable;
use super::collect::{Due, Look};
use crate::clock;
use crate::error::Result;
use crate::node_name::NodeName;

/// Rows that are looked at between two pauses.
const ROWS_PER_STEP: u64 = 500;
const STEP_PAUSE: Duration = Duration::from_secs(1);

impl Mounttable {
    /// Sweeps again and again, with a pause of about `every` between rounds.
    /// Never returns.
    pub async fn sweep_forever(self: Arc<Mounttable>, every: Duration) {
        loop {
            // Servers of the same tables do not sweep at the same time.
            tokio::time::sleep(every / 2 + clock::jitter(every)).await;
            if !self.ready.initialized() {
                continue;
            }
            match self.sweep(STEP_PAUSE).await {
                Ok(0) => {}
                Ok(cleared) => tracing::info!(cleared, "nodes were cleared away"),
                Err(error) => tracing::warn!(%error, "a sweep was broken off"),
            }
        }
    }

    /// Goes over all rows once. Tells at how many nodes it cleared something.
    pub async fn sweep(&self, pause: Duration) -> Result<u64> {
        let mut after = Vec::new();
        let mut cleared = 0;
        loop {
            let mut nodes = self.rows.scan_after(&after, ROWS_PER_STEP);
            let mut seen = 0;
            while let Some(read) = nodes.next().await? {
                seen += 1;
                match read {
                    Ok(node) => {
                        after = node.name.row_key().into_bytes();
                        if self.due(&node) != Due::Nothing {
                            cleared += u64::from(self.sweep_node(&node.name).await?);
                        }
                    }
                    // For fsck.
                    Err((key, _)) => after = key.to_vec(),
                }
            }
            if seen < ROWS_PER_STEP {
                return Ok(cleared);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Clears all that is due at a node and above it.
    async fn sweep_node(&self, name: &NodeName) -> Result<bool> {
        let mut cleared = false;
        // Servers first, then the node.
        for _ in 0..2 {
            let Some(node) = self.rows.get(name).await? else { break };
            match self.collect(&node, Look::Now).await {
                Ok(did) => cleared |= did,
                Err(error) if error.is_conflict() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(cleared)
    }
}
