//! Delete.

use super::{Attempts, Call, Mounttable};
use crate::access::ADMIN;
use crate::error::{Error, Result};
use crate::node_name::NodeName;

impl Mounttable {
    /// Deletes a node, and its subtree if `subtree` is set. A missing node is not an
    /// error. Requires Admin at the node or at its parent.
    pub async fn delete(&self, call: &Call, name: &str, subtree: bool) -> Result<()> {
        let node_name = NodeName::parse(name)?;
        let mut attempts = Attempts::new(call, name);
        loop {
            let tried = self.try_delete(call, &node_name, subtree).await;
            if let Some(done) = attempts.finish(tried).await {
                return done;
            }
        }
    }

    async fn try_delete(&self, call: &Call, name: &NodeName, subtree: bool) -> Result<()> {
        let path = match self.find(call, name).await {
            Err(Error::NoSuchName { .. }) => return Ok(()),
            found => found?,
        };
        let (node, Some(parent)) = (path.last(), path.parent()) else {
            return Err(Error::NoAccess);
        };
        if !self.may(&call.caller, parent, &[ADMIN]) {
            self.authorize(&call.caller, node, &[ADMIN])?;
        }
        if subtree {
            self.rows.delete_subtree(node).await?;
        } else {
            self.rows.delete(node).await?;
        }
        self.tidy(&parent.name).await
    }
}
