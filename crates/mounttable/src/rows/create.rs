//! Adding a node: the parent's reference first, then the row.

use std::sync::Arc;

use stele_bigtable::client::Mutation;

use super::{Kind, Limits, NodeRows, Turn};
use crate::access::Permissions;
use crate::clock;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, Node, PRESENT, ROOT_ID, Version, reference_column};
use crate::node_name::NodeName;

/// A child that is to be made.
pub struct NewChild<'a> {
    pub element: &'a str,
    pub permissions: Permissions,
    /// Who is charged for it.
    pub creator: String,
    pub limits: Limits,
    pub sticky: bool,
}

impl NodeRows {
    /// Makes a child of a node. The reference and the row carry the same id,
    /// which is the version that the parent had, and the same time.
    /// The turn at the parent ends as soon as that has the reference.
    pub async fn create_child(
        &self,
        turn: Turn<'_>,
        parent: &Node,
        new: NewChild<'_>,
    ) -> Result<Arc<Node>> {
        let created_micros = self.clock.now_of_cells();
        let child = Node {
            name: parent.name.child(new.element),
            id: parent.version.to_string(),
            version: Version(clock::random() as u32),
            version_micros: created_micros,
            creator: new.creator,
            created_micros,
            sticky: new.sticky,
            permissions: Arc::new(new.permissions),
            permissions_micros: created_micros,
            servers: Vec::new(),
        };
        let stale = self.references_to(parent, new.element).await?;
        self.refer(parent, &child).await?;
        drop(turn);
        let column = reference_column(&child.id, new.element);
        match self.insert_counted(&child, new.limits).await {
            Ok(()) => {}
            // The row may be there or still come: a reference without a row
            // is better than a row without a reference.
            Err(error) if error.is_unclear() => return Err(error),
            Err(error) => {
                self.remove_references(&parent.name, vec![column]).await?;
                return Err(error);
            }
        }
        self.check_reference(&child).await?;
        if !stale.is_empty() {
            self.drop_stale(parent, &child, &stale).await?;
        }
        Ok(Arc::new(child))
    }

    /// Drops references to the child that the parent had before. Their
    /// creators may be slow rather than dead.
    async fn drop_stale(&self, parent: &Node, child: &Node, ids: &[String]) -> Result<()> {
        let columns = ids.iter().map(|id| reference_column(id, child.name.last()));
        self.remove_references(&parent.name, columns.collect()).await?;
        self.look_again(&child.name, ids).await
    }

    /// Adds a reference to a child, with the child's id and time.
    pub async fn refer(&self, parent: &Node, child: &Node) -> Result<()> {
        let column = reference_column(&child.id, child.name.last());
        let set = Mutation::set_at(CHILDREN, column, child.created_micros, PRESENT);
        let (at_micros, evictions) = (self.clock.now(), self.cache.evictions(&parent.name));
        let after = self.change(parent, vec![set]).await?;
        self.listings.added(&parent.name, parent.version, &child.id, child.name.last());
        // Who adds many children to a node need not read it each time. One
        // eviction was our own.
        self.cache.put(after, at_micros, evictions + 1);
        Ok(())
    }

    /// Makes the root, unless it is there. Tells whether it did.
    pub async fn create_root(&self, permissions: Permissions, creator: &str) -> Result<bool> {
        let created_micros = self.clock.now_of_cells();
        let root = Node {
            name: NodeName::root(),
            id: ROOT_ID.into(),
            version: Version(clock::random() as u32),
            version_micros: created_micros,
            creator: creator.into(),
            created_micros,
            sticky: false,
            permissions: Arc::new(permissions),
            permissions_micros: created_micros,
            servers: Vec::new(),
        };
        match self.insert_counted(&root, Limits::NONE).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn insert_counted(&self, node: &Node, limits: Limits) -> Result<()> {
        self.counters.add(Kind::Nodes, &node.creator, 1, limits).await?;
        let error = match self.insert(node).await {
            Ok(true) => return Ok(()),
            Ok(false) => Error::Conflict { name: node.name.to_string() },
            Err(error) => error,
        };
        self.counters.give_back(Kind::Nodes, &node.creator, 1).await;
        Err(error)
    }

    /// While the row was being made, others may have deleted the parent or
    /// have made the child anew. Then the row has nobody who knows it.
    async fn check_reference(&self, child: &Node) -> Result<()> {
        if self.is_known(child).await? {
            return Ok(());
        }
        match self.delete_node(child).await {
            // Whoever has changed it since has seen to its reference.
            Err(error) if !error.is_conflict() => Err(error),
            _ => Err(Error::Conflict { name: child.name.to_string() }),
        }
    }
}
