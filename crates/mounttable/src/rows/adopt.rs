//! Keeping every row known to its parent, though no two rows change together.
//!
//! The promise: once a row holds a server or a child, its parent refers to it
//! until it is deleted. Four steps keep it, for a row C under a parent P.
//!
//! - A creator writes the reference (P's version changes), then C, and then
//!   looks whether P still refers to C. If not, it deletes C unless somebody
//!   has changed it since.
//! - Whoever changes C has read C and has seen P's reference to that very row at
//!   some time after that (`ensure_known`); without a reference it adds one, which
//!   changes P's version. It writes C only at the version it has read.
//! - Delete goes over all references that P had at one version. A row that it
//!   finds it deletes at the version it has read. References that are left then,
//!   because there was no row or one of another id, it drops, which changes P's
//!   version; it reads their rows again, deletes those, and deletes P at the
//!   version of the drop.
//! - A creator that finds older references to C drops them once its own row
//!   stands, and reads C again. If that is a row of a dropped id, it gives the
//!   reference back, or deletes the row if P is gone.
//!
//! Why that is enough: let somebody read C at t1, see P's reference at t2 and
//! write C, which was there all the time, at t3. A reference goes in three ways
//! only. With the deletion of its row, which happens before t3, and then the
//! write fails, or after it. By a creator whose row was never made. Or by a
//! drop, which must come after t2; C was there at t1, so the row that is read
//! after the drop is C. From there C is deleted at a version, before t3 or
//! after it, or P refers to it again. And P itself goes only at a version at
//! which every reference was dealt with so. Once C holds something, nobody
//! drops its reference any more: drops concern ids whose row was missed, and C
//! is found.
//!
//! Only who dies between a drop and the second look can break it. So that a
//! reference was seen is believed for some minutes only: a change of C after that
//! finds P without it, and adds it.

use std::time::Duration;

use super::NodeRows;
use crate::clock;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, Node, reference_column};
use crate::node_name::NodeName;

/// How often a reference is given back before that is left to the next change
/// of the row.
const ATTEMPTS: u32 = 50;
/// Rows that are remembered as known to their parents, and for how long.
const KNOWN_MAX: usize = 262_144;
const KNOWN_FOR: Duration = Duration::from_secs(300);

/// Rows whose references this process has seen.
pub struct KnownRows {
    seen: quick_cache::sync::Cache<NodeName, (String, i64)>,
}

impl Default for KnownRows {
    fn default() -> KnownRows {
        KnownRows { seen: quick_cache::sync::Cache::new(KNOWN_MAX) }
    }
}

impl NodeRows {
    /// Makes sure that the parent refers to a child before the child is
    /// changed, which was read before this is called.
    pub async fn ensure_known(&self, child: &Node) -> Result<()> {
        let now_micros = self.clock.now();
        let is_seen = |(id, at_micros): &(String, i64)| {
            let age = now_micros - at_micros;
            *id == child.id && (0..clock::micros(KNOWN_FOR)).contains(&age)
        };
        if self.known.seen.get(&child.name).as_ref().is_some_and(is_seen) {
            return Ok(());
        }
        if self.is_known(child).await? {
            return Ok(());
        }
        self.refer_again(child).await
    }

    /// Does the parent refer to this row now?
    pub(crate) async fn is_known(&self, child: &Node) -> Result<bool> {
        let Some(parent) = child.name.parent() else { return Ok(true) };
        let at_micros = self.clock.now();
        let column = reference_column(&child.id, child.name.last());
        let is_known = self.has_column(&parent, CHILDREN, &column).await?;
        if is_known {
            self.known.seen.insert(child.name.clone(), (child.id.clone(), at_micros));
        }
        Ok(is_known)
    }

    /// Makes the parent refer to a child, whatever was seen before.
    pub(crate) async fn refer_again(&self, child: &Node) -> Result<()> {
        let conflict = || Error::Conflict { name: child.name.to_string() };
        let Some(parent_name) = child.name.parent() else { return Ok(()) };
        let Some(parent) = self.get_now(&parent_name).await? else {
            self.cache.evict(&parent_name);
            return Err(conflict());
        };
        if self.is_known(child).await? {
            return Ok(());
        }
        self.refer(&parent, child).await?;
        // Who deleted the row before the reference came did not see that.
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

    /// The second look after references to a child were dropped: a row of one
    /// of these ids gets its reference back, or goes if its parent has gone.
    pub(super) async fn look_again(&self, name: &NodeName, dropped: &[String]) -> Result<()> {
        self.known.seen.remove(name);
        for _ in 0..ATTEMPTS {
            let Some(row) = self.get_now(name).await? else { return Ok(()) };
            if !dropped.contains(&row.id) {
                return Ok(());
            }
            let parent = name.parent().unwrap_or_else(NodeName::root);
            let settled = match self.get_now(&parent).await? {
                Some(_) => self.refer_again(&row).await,
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
