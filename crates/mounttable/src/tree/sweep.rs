//! The sweeper: slowly goes over all rows and removes the garbage at nodes that nobody
//! visits, so that it does not count against its owner's limits.

use std::sync::Arc;
use std::time::Duration;

use stele_grpc::Pending;

use super::Mounttable;
use super::collect::{ChildCheck, Garbage};
use crate::error::Result;
use crate::node_name::NodeName;

/// Number of rows that are processed between two pauses.
const ROWS_PER_STEP: u64 = 500;
const STEP_PAUSE: Duration = Duration::from_secs(1);

impl Mounttable {
    /// Sweeps repeatedly, with a pause of about `every` between rounds. Never returns.
    pub fn sweep_forever(self: Arc<Mounttable>, every: Duration) -> Pending<'static, ()> {
        Box::pin(async move {
            loop {
                // With jitter, so that servers of the same tables do not sweep at the same
                // time.
                tokio::time::sleep(every / 2 + stele_grpc::backoff::jitter(every)).await;
                if !self.ready.initialized() {
                    continue;
                }
                match self.sweep(STEP_PAUSE).await {
                    Ok(0) => {}
                    Ok(cleared) => {
                        tracing::info!(cleared, "removed expired servers and empty nodes")
                    }
                    Err(error) => tracing::warn!(%error, "sweep failed"),
                }
            }
        })
    }

    /// Goes over all rows once. Returns the number of nodes at which something was
    /// removed.
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
                        if self.garbage(&node) != Garbage::None {
                            cleared += u64::from(self.sweep_node(&node.name).await?);
                        }
                    }
                    // Damaged rows are left to fsck.
                    Err((key, _)) => after = key.to_vec(),
                }
            }
            if seen < ROWS_PER_STEP {
                return Ok(cleared);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Removes all garbage at a node and above it.
    async fn sweep_node(&self, name: &NodeName) -> Result<bool> {
        let mut cleared = false;
        // Servers first, then the node.
        for _ in 0..2 {
            let Some(node) = self.rows.get(name).await? else { break };
            match self.collect(&node, ChildCheck::Current).await {
                Ok(did) => cleared |= did,
                Err(error) if error.is_conflict() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(cleared)
    }
}
