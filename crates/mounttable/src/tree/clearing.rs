//! Removes expired servers and empty nodes on the path of an operation. This is best
//! effort: expired servers are omitted from every response whether or not they have
//! been removed, so a failed or slow removal neither fails nor delays the operation.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Mounttable;
use super::attempts::PAUSE_FIRST;
use super::collect::{ChildCheck, Garbage};
use crate::error::{Error, Result};
use crate::node::Node;

/// The maximum number of concurrent removals; operations beyond that remove nothing.
const RUNNING_MAX: usize = 1024;
/// How long nothing is removed after a failed removal.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The removals of one server.
pub(super) struct Clearing {
    running: Arc<Semaphore>,
    /// Nothing is removed before this time.
    paused_until: Mutex<Option<Instant>>,
}

impl Default for Clearing {
    fn default() -> Clearing {
        Clearing { running: Arc::new(Semaphore::new(RUNNING_MAX)), paused_until: Mutex::default() }
    }
}

impl Clearing {
    fn is_paused(&self) -> bool {
        self.paused_until.lock().is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self, why: &dyn std::fmt::Display) {
        let until = Instant::now() + PAUSE_AFTER_FAILURE;
        let before = self.paused_until.lock().replace(until);
        // Log once per pause, however many operations fail.
        if before.is_none_or(|before| before + PAUSE_AFTER_FAILURE <= until) {
            tracing::warn!(%why, "cannot remove expired servers and empty nodes");
        }
    }
}

impl Mounttable {
    /// Removes the garbage at the last node of a walk; other nodes of the walk have a
    /// child and are thus not empty. Returns whether anything was removed, or may have
    /// been removed by others, so that the caller reads the node again.
    pub(super) async fn clear(&self, node: &Arc<Node>) -> bool {
        match self.clearable(node).await {
            Ok(true) => {}
            // Operations that need rows that cannot be read fail on their own.
            Ok(false) | Err(_) => return false,
        }
        let permit = self.clearing.running.clone().try_acquire_owned();
        let (Ok(permit), Some(this)) = (permit, self.this.upgrade()) else { return false };
        let node = node.clone();
        // A separate task, which completes even if nobody waits for it: a removal that
        // is aborted halfway would leave wrong counters.
        let task = tokio::spawn(async move {
            let _permit = permit;
            this.collect(&node, ChildCheck::Recent).await
        });
        match tokio::time::timeout(self.options.clearing_wait, task).await {
            Ok(Ok(Ok(cleared))) => cleared,
            Ok(Ok(Err(error))) if error.is_conflict() => {
                tokio::time::sleep(stele_grpc::backoff::jitter(PAUSE_FIRST)).await;
                true
            }
            Ok(Ok(Err(error))) => self.clearing_failed(&error),
            Ok(Err(stopped)) => self.clearing_failed(&stopped),
            Err(elapsed) => self.clearing_failed(&elapsed),
        }
    }

    /// Returns whether there is something to remove and removals are not paused.
    async fn clearable(&self, node: &Arc<Node>) -> Result<bool, Error> {
        let garbage = self.garbage(node);
        if garbage == Garbage::None || self.clearing.is_paused() {
            return Ok(false);
        }
        Ok(garbage == Garbage::Servers || !self.rows.has_children(&node.name).await?)
    }

    fn clearing_failed(&self, why: &dyn std::fmt::Display) -> bool {
        self.clearing.pause(why);
        false
    }
}
