//! Clears away what is due at a node on the path of an operation. That is best
//! effort: expired servers are left out of every answer whether or not they
//! have been removed, so a clearing that fails or takes long neither fails nor
//! delays the operation.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::collect::{Due, Look};
use super::{Mounttable, PAUSE_FIRST};
use crate::clock;
use crate::error::{Error, Result};
use crate::node::Node;

/// Clearings that may run at once; operations beyond that clear nothing.
const RUNNING_MAX: usize = 1024;
/// How long nothing is cleared after a clearing that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The clearings of one server.
pub(super) struct Clearing {
    running: Arc<Semaphore>,
    /// Nothing is cleared before this.
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
        // One line for each pause, however many operations fail with it.
        if before.is_none_or(|before| before + PAUSE_AFTER_FAILURE <= until) {
            tracing::warn!(%why, "expired servers and empty nodes cannot be removed now");
        }
    }
}

impl Mounttable {
    /// Clears away what is due at a node where a walk ends: one whose child was
    /// found has that. Returns whether anything was cleared, or may have been
    /// by others, so that the caller reads again.
    pub(super) async fn clear(&self, node: &Arc<Node>) -> bool {
        match self.clearable(node).await {
            Ok(true) => {}
            // Whoever needs the rows that cannot be read fails by itself.
            Ok(false) | Err(_) => return false,
        }
        let permit = self.clearing.running.clone().try_acquire_owned();
        let (Ok(permit), Some(this)) = (permit, self.this.upgrade()) else { return false };
        let node = node.clone();
        // A task of its own, which completes even if nobody waits for it: a
        // removal that is abandoned halfway would leave counters wrong.
        let task = tokio::spawn(async move {
            let _permit = permit;
            this.collect(&node, Look::Lately).await
        });
        match tokio::time::timeout(self.options.clearing_wait, task).await {
            Ok(Ok(Ok(cleared))) => cleared,
            Ok(Ok(Err(error))) if error.is_conflict() => {
                tokio::time::sleep(clock::jitter(PAUSE_FIRST)).await;
                true
            }
            Ok(Ok(Err(error))) => self.clearing_failed(&error),
            Ok(Err(stopped)) => self.clearing_failed(&stopped),
            Err(elapsed) => self.clearing_failed(&elapsed),
        }
    }

    /// Whether there is something to clear and it may be tried now.
    async fn clearable(&self, node: &Arc<Node>) -> Result<bool, Error> {
        let due = self.due(node);
        if due == Due::Nothing || self.clearing.is_paused() {
            return Ok(false);
        }
        Ok(due == Due::Servers || !self.rows.has_children(&node.name).await?)
    }

    fn clearing_failed(&self, why: &dyn std::fmt::Display) -> bool {
        self.clearing.pause(why);
        false
    }
}
