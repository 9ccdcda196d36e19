//! Keeps every row referenced by its parent, although no two rows can be changed
//! atomically.
//!
//! Invariant: once a row has a server or a child, its parent refers to it until it is
//! deleted. Four rules maintain it, for a row C below a parent P.
//!
//! - A creator writes the reference (which changes P's version), then C, and then
//!   checks whether P still refers to C. If not, it deletes C unless another operation
//!   has changed it since.
//! - An operation that changes C has read C and has seen P's reference to that very row
//!   at some time after that (`ensure_referenced`); without a reference it adds one, which
//!   changes P's version. It writes C only at the version it has read.
//! - Delete processes all references that P had at one version. It deletes each row
//!   that it finds at the version it has read. It drops the remaining references, whose
//!   row did not exist or had another id, which changes P's version; it reads their rows
//!   again, deletes those, and deletes P at the version of the drop.
//! - A creator that finds older references to C drops them after it has written its own
//!   row, and reads C again. If that is a row with a dropped id, it restores the
//!   reference, or deletes the row if P has been deleted.
//!
//! Proof: let an operation read C at t1, see P's reference at t2 and write C, which
//! existed all the time, at t3. A reference is removed in three ways only. With the
//! deletion of its row: if that happens before t3, the write fails; otherwise the
//! deletion comes after it. By a creator whose row was never written. Or by a drop,
//! which must come after t2; C existed at t1, so the row that is read after the drop is
//! C. Then C is deleted at a version, before t3 or after it, or P refers to it again.
//! And P itself is deleted only at a version at which every reference was handled this
//! way. Once C has a server or a child, its reference is no longer dropped: drops
//! concern ids whose row was not found, and C is found.
//!
//! Only a crash between a drop and the second read can break the invariant. Therefore a
//! seen reference is trusted for a few minutes only: a later change of C finds P
//! without it, and adds it.

use std::time::Duration;

use super::NodeRows;
use crate::clock;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, Node, reference_column};
use crate::node_name::NodeName;

/// The maximum number of cached rows whose parents refer to them.
const REFERENCED_ROWS_MAX: usize = 262_144;
/// How long a reference is trusted to exist after it was seen.
const REFERENCE_TRUSTED: Duration = Duration::from_secs(300);
/// The maximum number of attempts to restore a reference before that is left to the
/// next change of the row.
const ATTEMPTS: u32 = 50;

/// Rows whose references this process has seen.
pub struct ReferencedRows {
    seen: quick_cache::sync::Cache<NodeName, (String, i64)>,
}

impl Default for ReferencedRows {
    fn default() -> ReferencedRows {
        ReferencedRows { seen: quick_cache::sync::Cache::new(REFERENCED_ROWS_MAX) }
    }
}

impl NodeRows {
    /// Ensures that the parent refers to a child before the child is changed. The child
    /// must have been read before.
    pub async fn ensure_referenced(&self, child: &Node) -> Result<()> {
        let now_micros = self.clock.now();
        let is_seen = |(id, at_micros): &(String, i64)| {
            let age = now_micros - at_micros;
            *id == child.id && (0..clock::micros(REFERENCE_TRUSTED)).contains(&age)
        };
        if self.referenced.seen.get(&child.name).as_ref().is_some_and(is_seen) {
            return Ok(());
        }
        if self.is_referenced(child).await? {
            return Ok(());
        }
        self.restore_reference(child).await
    }

    /// Returns whether the parent refers to this row now.
    pub(crate) async fn is_referenced(&self, child: &Node) -> Result<bool> {
        let Some(parent) = child.name.parent() else { return Ok(true) };
        let at_micros = self.clock.now();
        let column = reference_column(&child.id, child.name.last());
        let is_referenced = self.has_column(&parent, CHILDREN, &column).await?;
        if is_referenced {
            self.referenced.seen.insert(child.name.clone(), (child.id.clone(), at_micros));
        }
        Ok(is_referenced)
    }

    /// Adds the parent's reference to a child, whatever was seen before.
    pub(crate) async fn restore_reference(&self, child: &Node) -> Result<()> {
        let conflict = || Error::Conflict { name: child.name.to_string() };
        let Some(parent_name) = child.name.parent() else { return Ok(()) };
        let Some(parent) = self.get_now(&parent_name).await? else {
            self.cache.evict(&parent_name);
            return Err(conflict());
        };
        if self.is_referenced(child).await? {
            return Ok(());
        }
        self.refer(&parent, child).await?;
        // A deletion of the row before the reference was added did not see it.
        match self.get_now(&child.name).await? {
            Some(row) if row.id == child.id => Ok(()),
            _ => {
                self.cache.evict(&child.name);
                let column = reference_column(&child.id, child.name.last());
                self.remove_references(&parent_name, vec![column]).await?;
                Err(conflict())
            }
        }
    }

    /// Checks again after references to a child were dropped: a row with one of these
    /// ids gets its reference back, or is deleted if its parent has been deleted.
    pub(super) async fn recheck_dropped(&self, name: &NodeName, dropped: &[String]) -> Result<()> {
        self.referenced.seen.remove(name);
        for _ in 0..ATTEMPTS {
            let Some(row) = self.get_now(name).await? else { return Ok(()) };
            if !dropped.contains(&row.id) {
                return Ok(());
            }
            let parent = name.parent().unwrap_or_else(NodeName::root);
            let settled = match self.get_now(&parent).await? {
                Some(_) => self.restore_reference(&row).await,
                None => self.delete_subtree(&row).await,
            };
            match settled {
                Err(error) if error.is_conflict() => {}
                settled => return settled,
            }
        }
        Ok(())
    }
}
