//! Removing nodes: the row first, then the parent's reference.

use std::sync::Arc;

use stele_bigtable::client::Mutation;

use super::{Kind, NodeRows};
use crate::error::{Error, Result};
use crate::node::{CHILDREN, Node, reference_column};
use crate::node_name::NodeName;

/// A node whose children are being deleted.
struct Open {
    node: Arc<Node>,
    children: Vec<NodeName>,
}

impl NodeRows {
    /// Deletes a node that has no children; a reference to a child that is
    /// not there counts as one.
    pub async fn delete(&self, node: &Node) -> Result<()> {
        if !node.children.is_empty() {
            return Err(Error::NotEmpty { name: node.name.to_string() });
        }
        self.delete_node(node).await
    }

    /// Deletes a node and all below it, from the leaves up. What is deleted
    /// stays deleted if it is broken off.
    pub async fn delete_subtree(&self, node: Arc<Node>) -> Result<()> {
        let open = |node: Arc<Node>| {
            let children = node.children.keys().map(|element| node.name.child(element)).collect();
            Open { node, children }
        };
        let mut path = vec![open(node)];
        while let Some(top) = path.last_mut() {
            match top.children.pop() {
                // A reference without a row goes with the row that holds it.
                Some(child) => path.extend(self.get_now(&child).await?.map(open)),
                None => {
                    self.delete_node(&top.node).await?;
                    path.pop();
                }
            }
        }
        Ok(())
    }

    async fn delete_node(&self, node: &Node) -> Result<()> {
        self.delete_row(node).await?;
        if let Some(parent) = node.name.parent() {
            let column = reference_column(&node.id, node.name.last());
            self.remove_references(&parent, vec![column]).await?;
        }
        self.count_deleted(node).await;
        Ok(())
    }

    /// Deletes a row if it is as it was read.
    pub async fn delete_row(&self, node: &Node) -> Result<()> {
        self.if_unchanged(node, [Mutation::delete_row()]).await
    }

    pub(super) async fn count_deleted(&self, node: &Node) {
        let servers = i64::try_from(node.servers.len()).unwrap_or(i64::MAX);
        self.counters.give_back(Kind::Servers, &node.creator, servers).await;
        self.counters.give_back(Kind::Nodes, &node.creator, 1).await;
    }

    /// Takes references out of a node if it is as it was read.
    pub async fn drop_references<'a>(
        &self,
        node: &Node,
        references: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<()> {
        let deletes = references
            .into_iter()
            .map(|(id, element)| Mutation::delete_column(CHILDREN, reference_column(id, element)));
        self.change(node, deletes.collect()).await.map(drop)
    }
}
