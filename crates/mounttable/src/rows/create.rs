//! Creates a node: the parent's reference first, then the row.

use std::sync::Arc;

use stele_bigtable_client::Mutation;

use super::{Kind, Limits, NodeRows, Turn};
use crate::access::Permissions;
use crate::clock;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, Node, PRESENT, ROOT_ID, Version, reference_column};
use crate::node_name::NodeName;

/// A child to create.
pub struct NewChild<'a> {
    pub element: &'a str,
    pub permissions: Permissions,
    /// The user that is charged for it.
    pub creator: String,
    pub limits: Limits,
    pub sticky: bool,
}

impl NodeRows {
    /// Creates a child of a node. The reference and the row have the same id, which is
    /// the version that the parent had, and the same timestamp. The turn at the parent
    /// ends as soon as the reference is written.
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
            // The row may exist or appear later: a reference without a row is better
            // than a row without a reference.
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

    /// Drops older references of the parent to the child. Their creators may be slow
    /// rather than dead.
    async fn drop_stale(&self, parent: &Node, child: &Node, ids: &[String]) -> Result<()> {
        let columns = ids.iter().map(|id| reference_column(id, child.name.last()));
        self.remove_references(&parent.name, columns.collect()).await?;
        self.recheck_dropped(&child.name, ids).await
    }

    /// Adds a reference to a child, with the child's id and timestamp.
    pub async fn refer(&self, parent: &Node, child: &Node) -> Result<()> {
        let column = reference_column(&child.id, child.name.last());
        let set = Mutation::set_at(CHILDREN, column, child.created_micros, PRESENT);
        let (at_micros, evictions) = (self.clock.now(), self.cache.evictions(&parent.name));
        let after = self.change(parent, vec![set]).await?;
        self.listings.added(&parent.name, parent.version, &child.id, child.name.last());
        // The next addition of a child need not read the node again. One eviction was
        // caused by this change.
        self.cache.put(after, at_micros, evictions + 1);
        Ok(())
    }

    /// Creates the root if it does not exist. Returns whether it did.
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

    /// Checks the reference after the row was written. The parent may have been
    /// deleted, or the child created again, in the meantime; then nothing refers to the
    /// row.
    async fn check_reference(&self, child: &Node) -> Result<()> {
        if self.is_referenced(child).await? {
            return Ok(());
        }
        match self.delete_node(child).await {
            // An operation that has changed it since has ensured its reference.
            Err(error) if !error.is_conflict() => Err(error),
            _ => Err(Error::Conflict { name: child.name.to_string() }),
        }
    }
}
