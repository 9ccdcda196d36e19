//! ResolveStep: the servers that are responsible for a name.

use super::{Call, Entry, Mounttable};
use crate::error::{Error, Result};
use crate::node::Server;
use crate::node_name::NodeName;

impl Mounttable {
    /// Returns the servers of the first node on the path that has any, and the rest of
    /// the name for them.
    pub async fn resolve_step(&self, call: &Call, name: &str) -> Result<Entry> {
        let node_name = NodeName::parse(name)?;
        match self.find_servers(call, &node_name).await? {
            Some((node, rest)) => Ok(Entry::of(&node, rest, self.now())),
            None => Err(Error::NoSuchName { name: node_name.as_str().into() }),
        }
    }

    /// Returns the live servers of exactly this node, possibly none. Returns `None` if
    /// a node above it has servers.
    pub(crate) async fn public_servers(
        &self,
        call: &Call,
        name: &NodeName,
    ) -> Result<Option<Vec<Server>>> {
        let found = self.find_servers(call, name).await?;
        Ok(match found {
            Some((node, rest)) => {
                let live = || node.live(self.now()).cloned().collect();
                rest.is_empty().then(live)
            }
            None => Some(Vec::new()),
        })
    }
}
