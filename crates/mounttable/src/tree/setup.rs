//! Creates the tables, the root, and the nodes in a permissions file.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_bigtable_client::{Client, GcRule, NewTable};
use tonic::Code;

use super::{Attempts, Call, Mounttable};
use crate::access::Permissions;
use crate::blessing::Caller;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, METADATA, Node, SERVERS};
use crate::node_name::NodeName;
use crate::rows::{Limits, NewChild, counters_table};

/// The suffix of keys with permissions for all children of a node.
const FOR_CHILDREN: &str = "/%%";

/// Nodes that exist from the start, by name, with their permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstNodes(BTreeMap<NodeName, Permissions>);

impl Default for FirstNodes {
    /// Returns a root with open permissions.
    fn default() -> FirstNodes {
        FirstNodes(BTreeMap::from([(NodeName::root(), Permissions::open())]))
    }
}

impl FirstNodes {
    /// Parses `{"": {"Admin": {"In": [...]}}, "users": ...}`. A key `users/%%` is a
    /// template for the children of `users`.
    pub fn from_json(json: &[u8]) -> Result<FirstNodes> {
        let given: BTreeMap<String, Permissions> = serde_json::from_slice(json)
            .map_err(|error| Error::BadPermissions(error.to_string()))?;
        let mut nodes: BTreeMap<NodeName, Permissions> = BTreeMap::new();
        for (key, permissions) in given {
            let (name, permissions) = match key.strip_suffix(FOR_CHILDREN) {
                Some(name) => (name, Permissions(permissions.as_template().collect())),
                None => (&key[..], permissions),
            };
            nodes.entry(NodeName::parse(name)?).or_default().0.extend(permissions.0);
        }
        if !nodes.contains_key(&NodeName::root()) {
            let what = "the root is missing: add its permissions under \"\"";
            return Err(Error::BadPermissions(what.into()));
        }
        let normalised = nodes.into_iter().map(|(name, given)| (name, given.normalised()));
        Ok(FirstNodes(normalised.collect()))
    }
}

/// Returns the rows at which the table of nodes is split from the start: row keys begin
/// with the hexadecimal digits of a hash. Names that differ only in their last characters
/// have similar hashes, so a table of such names needs further splits.
fn node_splits() -> impl Iterator<Item = String> {
    (1..16).map(|digit| format!("{digit:x}"))
}

/// Creates missing tables.
pub async fn create_tables(client: &Client, table: &str) -> Result<()> {
    let newest = GcRule::MaxVersions(1);
    let counters = NewTable::new(counters_table(table)).family(METADATA, newest.clone());
    let mut nodes = NewTable::new(table);
    for family in [METADATA, SERVERS, CHILDREN] {
        nodes = nodes.family(family, newest.clone());
    }
    for row in node_splits() {
        nodes = nodes.split(row);
    }
    let existing = client.list_tables().await?;
    for new in [counters, nodes] {
        if existing.contains(&new.id) {
            continue;
        }
        match client.create_table(new).await {
            // Another server is starting at the same time.
            Err(error) if error.code() == Code::AlreadyExists => {}
            created => drop(created?),
        }
    }
    Ok(())
}

impl Mounttable {
    /// Creates the root and the first nodes that do not exist. Existing nodes keep
    /// their permissions.
    pub async fn set_up(&self, nodes: &FirstNodes) -> Result<()> {
        let server = Caller::server();
        let root = nodes.0.get(&NodeName::root()).cloned().unwrap_or_default();
        self.rows.create_root(root, &server.user_id()).await?;
        let call = Call::by(server);
        for (name, permissions) in &nodes.0 {
            let mut attempts = Attempts::new(&call, name.as_str());
            loop {
                let tried = self.create_node(name, permissions).await;
                if let Some(done) = attempts.finish(tried).await {
                    break done?;
                }
            }
        }
        Ok(())
    }

    /// Creates one node. Missing ancestors inherit their permissions and are removed
    /// when they are empty.
    async fn create_node(&self, name: &NodeName, permissions: &Permissions) -> Result<()> {
        let mut parent: Option<Arc<Node>> = None;
        for prefix in name.prefixes() {
            let found = self.rows.get_now(&prefix).await?;
            let is_last = prefix == *name;
            parent = Some(match (found, parent) {
                (Some(found), _) => {
                    self.rows.ensure_referenced(&found).await?;
                    found
                }
                (None, None) => return Err(Error::NoSuchNameRoot),
                (None, Some(above)) => {
                    let new = NewChild {
                        element: prefix.last(),
                        permissions: if is_last {
                            permissions.clone()
                        } else {
                            Permissions::clone(&above.permissions)
                        },
                        creator: Caller::server().user_id(),
                        limits: Limits::NONE,
                        sticky: is_last,
                    };
                    let turn = self.rows.turn(&above.name).await;
                    self.rows.create_child(turn, &above, new).await?
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{ADMIN, READ};

    #[test]
    fn keys_for_children_become_templates() {
        let json = br#"{
            "": {"Admin": {"In": ["root"]}},
            "users": {"Read": {"In": ["..."]}},
            "users/%%": {"Admin": {"In": ["dev:u:%%"]}},
            "/groups/%%": {"Admin": {"In": ["%%"]}}
        }"#;
        let nodes = FirstNodes::from_json(json).unwrap().0;
        let of = |name: &str| nodes[&NodeName::parse(name).unwrap()].clone();
        assert_eq!(of(""), Permissions::default().with(ADMIN, ["root"]));
        let users = Permissions::default().with(READ, ["..."]).with("%%/Admin", ["dev:u:%%"]);
        assert_eq!(of("users"), users);
        assert_eq!(of("groups"), Permissions::default().with("%%/Admin", ["%%"]));
    }

    #[test]
    fn scale_8_8_nodes_are_spread_evenly_over_the_initial_tablets() {
        let splits: Vec<String> = node_splits().collect();
        assert!(splits.is_sorted());
        let mut nodes = vec![0; splits.len() + 1];
        for number in 0..1600 {
            let key = NodeName::parse(&format!("hosts/h{number}/server")).unwrap().row_key();
            nodes[splits.partition_point(|split| *split <= key)] += 1;
        }
        assert!(nodes.iter().all(|&count| (40..250).contains(&count)), "{nodes:?}");
    }

    #[test]
    fn a_file_without_a_root_or_with_errors_is_rejected() {
        for bad in ["", "[]", r#"{"users": {}}"#, r#"{"": {"Admin": 1}}"#, r#"{"": {}, "__x": {}}"#]
        {
            assert!(FirstNodes::from_json(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
