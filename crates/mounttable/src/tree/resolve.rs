//! ResolveStep: the servers that know more about a name.

use super::{Call, Entry, Mounttable};
use crate::error::{Error, Result};
use crate::node::Server;
use crate::node_name::NodeName;

impl Mounttable {
    /// The servers of the first node on the way that has any, and what is left
    /// of the name for them.
    pub async fn resolve_step(&self, call: &Call, name: &str) -> Result<Entry> {
        let node_name = NodeName::parse(name)?;
        match self.find_servers(call, &node_name).await? {
            Some((node, rest)) => Ok(Entry::of(&node, rest, self.now())),
            None => Err(Error::NoSuchName { name: node_name.as_str().into() }),
        }
    }

    /// The live servers of exactly this node, which may have none. `None` if
    /// its name leads to another server before its end.
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
