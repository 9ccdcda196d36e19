//! Deletes nodes: the row first, then the parent's reference. `adopt` explains why
//! references without a row are dropped before the row that contains them.

use std::collections::BTreeSet;
use std::sync::Arc;

use stele_bigtable_client::Mutation;

use super::{Kind, NodeRows};
use crate::error::{Error, Result};
use crate::node::{Branch, CHILDREN, Node, Reference, reference_column};
use crate::node_name::NodeName;

/// A node whose children are being deleted.
struct Open {
    node: Arc<Node>,
    /// Children whose rows are still to be read.
    children: Vec<NodeName>,
    /// References, as element and id, whose row was not found and deleted.
    unsettled: BTreeSet<(String, String)>,
}

impl Open {
    fn new(branch: Branch) -> Open {
        let Branch { node, children: of_node, .. } = branch;
        let children = of_node.keys().map(|element| node.name.child(element)).collect();
        let pair =
            |element: &String, reference: &Reference| (element.clone(), reference.id.clone());
        let unsettled = of_node
            .iter()
            .flat_map(|(element, all)| all.iter().map(move |reference| pair(element, reference)))
            .collect();
        Open { node, children, unsettled }
    }
}

impl NodeRows {
    /// Deletes a node without children; a reference to a child that does not exist
    /// counts as a child.
    pub async fn delete(&self, node: &Node) -> Result<()> {
        let name = || node.name.to_string();
        if !self.has_children_now(&node.name).await? {
            // Adding a child after this check changes the version.
            return self.delete_node(node).await;
        }
        match self.get_now(&node.name).await? {
            Some(now) if now.version == node.version => Err(Error::NotEmpty { name: name() }),
            _ => {
                self.cache.evict(&node.name);
                Err(Error::Conflict { name: name() })
            }
        }
    }

    /// Deletes a node and its subtree, from the leaves up. If it is interrupted, what
    /// was deleted stays deleted.
    pub async fn delete_subtree(&self, node: &Node) -> Result<()> {
        let same = |now: &Branch| now.node.id == node.id && now.node.version == node.version;
        let Some(branch) = self.get_branch(&node.name).await?.filter(same) else {
            self.cache.evict(&node.name);
            return Err(Error::Conflict { name: node.name.to_string() });
        };
        let mut path = vec![Open::new(branch)];
        while let Some(top) = path.last_mut() {
            if let Some(child) = top.children.pop() {
                path.extend(self.get_branch(&child).await?.map(Open::new));
                continue;
            }
            if !top.unsettled.is_empty() {
                self.drop_unsettled(top).await?;
                continue;
            }
            self.delete_node(&top.node).await?;
            let deleted = (top.node.name.last().to_string(), top.node.id.clone());
            path.pop();
            if let Some(above) = path.last_mut() {
                above.unsettled.remove(&deleted);
            }
        }
        Ok(())
    }

    /// Drops references whose row was not deleted. Their creators may be slow rather
    /// than dead, so the rows are read once more.
    async fn drop_unsettled(&self, open: &mut Open) -> Result<()> {
        let references = open.unsettled.iter().map(|(element, id)| (&id[..], &element[..]));
        let after = self.drop_references(&open.node, references).await?;
        let elements: BTreeSet<_> =
            std::mem::take(&mut open.unsettled).into_iter().map(|(element, _)| element).collect();
        open.children = elements.iter().map(|element| open.node.name.child(element)).collect();
        open.node = Arc::new(after);
        Ok(())
    }

    /// Deletes a node that was found to have no children, if its version is unchanged.
    pub async fn delete_node(&self, node: &Node) -> Result<()> {
        self.if_unchanged(node, [Mutation::delete_row()]).await?;
        if let Some(parent) = node.name.parent() {
            let column = reference_column(&node.id, node.name.last());
            self.remove_references(&parent, vec![column]).await?;
        }
        self.count_deleted(node).await;
        Ok(())
    }

    async fn count_deleted(&self, node: &Node) {
        let servers = i64::try_from(node.servers.len()).unwrap_or(i64::MAX);
        self.counters.give_back(Kind::Servers, &node.creator, servers).await;
        self.counters.give_back(Kind::Nodes, &node.creator, 1).await;
    }

    /// Removes references from a node if its version is unchanged. Returns the node
    /// afterwards.
    pub async fn drop_references<'a>(
        &self,
        node: &Node,
        references: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Node> {
        let deletes = references
            .into_iter()
            .map(|(id, element)| Mutation::delete_column(CHILDREN, reference_column(id, element)));
        self.change(node, deletes.collect()).await
    }
}
