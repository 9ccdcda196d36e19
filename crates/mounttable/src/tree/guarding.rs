//! GetPermissions and SetPermissions.

use super::walk::{LastNode, SEE};
use super::{Attempts, Call, Mounttable};
use crate::access::{ADMIN, Permissions};
use crate::error::{Error, Result};
use crate::node_name::NodeName;

impl Mounttable {
    /// Rejects a caller that is not an administrator of the root.
    pub async fn authorize_at_root(&self, call: &Call) -> Result<()> {
        let path = self.find(call, &NodeName::root()).await?;
        self.authorize(&call.caller, path.last(), &[ADMIN])
    }

    /// Returns the permissions of a node and their version.
    pub async fn permissions(&self, call: &Call, name: &str) -> Result<(Permissions, String)> {
        let node_name = NodeName::parse(name)?;
        let path = self.find(call, &node_name).await?;
        let node = path.last();
        self.authorize(&call.caller, node, &SEE)?;
        Ok((Permissions::clone(&node.permissions), node.permissions_version()))
    }

    /// Sets the permissions of a node, makes it sticky, and returns the version of the
    /// permissions. `version` must be that of the old ones unless it is empty. A caller
    /// that would no longer be admitted is added, so that nobody loses access by
    /// accident.
    pub async fn set_permissions(
        &self,
        call: &Call,
        name: &str,
        permissions: &Permissions,
        version: &str,
    ) -> Result<String> {
        let node_name = NodeName::parse(name)?;
        let remains_admin = call.caller.is_server()
            || permissions.admit(&call.caller, &[ADMIN])
            || self.options.superusers.admits(&call.caller);
        let permissions = match remains_admin {
            true => permissions.clone(),
            false => permissions.clone().with_admin(&call.caller),
        };
        let permissions = permissions.normalised();
        permissions.check_size()?;
        permissions.check_patterns()?;
        let mut attempts = Attempts::new(call, name);
        loop {
            let tried = self.try_set_permissions(call, &node_name, &permissions, version).await;
            if let Some(done) = attempts.finish(tried).await {
                return done;
            }
        }
    }

    async fn try_set_permissions(
        &self,
        call: &Call,
        name: &NodeName,
        permissions: &Permissions,
        version: &str,
    ) -> Result<String> {
        let other = || Error::BadVersion { name: name.to_string() };
        let node = match version {
            "" => self.find_or_create(call, name, &[ADMIN], LastNode::AsItIs).await?,
            _ => match self.find(call, name).await {
                Ok(path) => {
                    self.rows.ensure_referenced(path.last()).await?;
                    path.last().clone()
                }
                // Do not create a node only to reject the request.
                Err(Error::NoSuchName { .. }) => return Err(other()),
                Err(error) => return Err(error),
            },
        };
        self.authorize(&call.caller, &node, &[ADMIN])?;
        if !version.is_empty() && node.permissions_version() != version {
            return Err(other());
        }
        self.rows.set_permissions(&node, permissions).await
    }
}
