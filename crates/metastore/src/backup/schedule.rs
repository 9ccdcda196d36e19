//! Takes backups regularly, on the leader.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::create::{Kind, create};
use crate::Node;
use crate::error::Result;

/// The task that takes backups; ends when this is dropped.
pub struct Schedule {
    task: JoinHandle<()>,
}

impl Schedule {
    /// Starts the task of a node whose settings have a location and an
    /// interval. It does not keep the node alive between two backups.
    pub fn start(node: &Arc<Node>) -> Result<Option<Schedule>> {
        let Some(settings) = node.settings().backup.clone() else { return Ok(None) };
        let location = (node.settings().open_location)(&settings.location)?;
        let Some(every) = settings.every else { return Ok(None) };
        let node = Arc::downgrade(node);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(node) = node.upgrade() else { return };
                let status = node.status();
                if status.leader_id == status.member_id {
                    report(create(&node, location.clone(), false, settings.keep).await);
                }
            }
        });
        Ok(Some(Schedule { task }))
    }
}

fn report(created: Result<super::Created>) {
    match created {
        Ok(created) if created.kind == Kind::Unchanged => {}
        Ok(created) => {
            let (name, revision, bytes) = (created.name, created.revision, created.bytes);
            tracing::info!(name, revision, bytes, "took a backup of the metastore");
        }
        Err(error) => tracing::error!(%error, "the backup of the metastore failed"),
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.task.abort();
    }
}
