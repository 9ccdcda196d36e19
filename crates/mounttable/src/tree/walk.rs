//! Walks down a name node by node: reads, removes what has expired, checks access, and
//! creates missing nodes if requested.

use std::sync::Arc;

use super::collect::Garbage;
use super::{Call, Mounttable};
use crate::access::{ADMIN, CREATE, READ, RESOLVE};
use crate::blessing::Caller;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node_name::NodeName;
use crate::rows::NewChild;

/// The tags that let a caller pass a node on the path to another.
const PASS: [&str; 4] = [RESOLVE, READ, CREATE, ADMIN];
/// The tags that let a caller see a node and its servers.
pub const SEE: [&str; 3] = [RESOLVE, READ, ADMIN];

/// How current the last node of the path must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastNode {
    /// As this process last knew it: the change fails if it is outdated.
    AsLastKnown,
    AsItIs,
}

/// The nodes from the root to the requested one.
pub struct Path(Vec<Arc<Node>>);

impl Path {
    pub fn last(&self) -> &Arc<Node> {
        self.0.last().expect("a path has at least the root")
    }

    pub fn parent(&self) -> Option<&Arc<Node>> {
        self.0.len().checked_sub(2).map(|at| &self.0[at])
    }
}

impl Mounttable {
    /// Rejects a caller that no list of these tags admits.
    pub(super) fn authorize(
        &self,
        caller: &Caller,
        node: &Node,
        tags: &[&'static str],
    ) -> Result<()> {
        if self.may(caller, node, tags) {
            return Ok(());
        }
        let tag = tags.first().copied().unwrap_or(ADMIN);
        Err(Error::NoPermissions { name: node.name.to_string(), tag, who: caller.to_string() })
    }

    pub(super) fn may(&self, caller: &Caller, node: &Node, tags: &[&str]) -> bool {
        caller.is_server()
            || node.permissions.admit(caller, tags)
            || self.options.superusers.admits(caller)
    }

    /// Reads a node and removes its expired servers. Some may remain if they cannot be
    /// removed now.
    pub(super) async fn visit(&self, call: &Call, name: &NodeName) -> Result<Option<Arc<Node>>> {
        loop {
            call.check(name)?;
            let Some(node) = self.rows.get(name).await? else { return Ok(None) };
            if self.garbage(&node) != Garbage::Servers || !self.clear(&node).await {
                return Ok(Some(node));
            }
        }
    }

    /// Removes the garbage at the last node of a walk, if there was one.
    async fn clear_last(&self, node: Option<&Arc<Node>>) -> bool {
        match node {
            Some(node) => self.clear(node).await,
            None => false,
        }
    }

    /// Returns a node whose ancestors are known to exist, after removing the garbage
    /// there if possible.
    pub(super) async fn find_last(
        &self,
        call: &Call,
        name: &NodeName,
    ) -> Result<Option<Arc<Node>>> {
        loop {
            let node = self.visit(call, name).await?;
            if !self.clear_last(node.as_ref()).await {
                return Ok(node);
            }
        }
    }

    /// Returns the node of a name. The caller must be allowed to pass all nodes above
    /// it.
    pub(super) async fn find(&self, call: &Call, name: &NodeName) -> Result<Path> {
        loop {
            let mut path = Path(Vec::new());
            let mut end = None;
            for prefix in name.prefixes() {
                if let Some(before) = path.0.last() {
                    self.authorize(&call.caller, before, &PASS)?;
                }
                match self.visit(call, &prefix).await? {
                    Some(node) => path.0.push(node),
                    None => {
                        end = Some(prefix);
                        break;
                    }
                }
            }
            if !self.clear_last(path.0.last()).await {
                return end.map_or(Ok(path), |end| Err(missing(&end)));
            }
        }
    }

    /// Returns the node of a name, created with all missing nodes above it. The caller
    /// must have one of `tags` at the node, which is checked before anything is
    /// created.
    pub(super) async fn find_or_create(
        &self,
        call: &Call,
        name: &NodeName,
        tags: &[&'static str],
        last: LastNode,
    ) -> Result<Arc<Node>> {
        let mut node: Option<Arc<Node>> = None;
        for prefix in name.prefixes() {
            if let Some(before) = &node {
                self.authorize(&call.caller, before, &PASS)?;
            }
            let known = (last == LastNode::AsLastKnown && prefix == *name)
                .then(|| self.rows.last(&prefix))
                .flatten();
            let found = match known {
                Some(known) => Some(known),
                None => self.visit(call, &prefix).await?,
            };
            node = Some(match (found, &node) {
                (Some(found), _) => {
                    self.rows.ensure_referenced(&found).await?;
                    found
                }
                (None, None) => return Err(Error::NoSuchNameRoot),
                (None, Some(parent)) => {
                    // Nodes below a missing node do not exist.
                    let wanted = if prefix == *name { tags } else { &[CREATE, ADMIN] };
                    self.create(call, parent, &prefix, prefix == *name, wanted).await?
                }
            });
        }
        let node = node.expect("a name has at least the root among its prefixes");
        self.authorize(&call.caller, &node, tags)?;
        Ok(node)
    }

    async fn create(
        &self,
        call: &Call,
        parent: &Node,
        name: &NodeName,
        is_last: bool,
        tags: &[&'static str],
    ) -> Result<Arc<Node>> {
        let turn = self.rows.turn(&parent.name).await;
        // The previous holder of the turn may have changed it.
        let again = self.rows.get(&parent.name).await?;
        let parent = &*again.ok_or_else(|| Error::Conflict { name: parent.name.to_string() })?;
        self.authorize(&call.caller, parent, &[CREATE, ADMIN])?;
        let permissions = parent.permissions.for_child(name.last(), &call.caller, is_last)?;
        let superuser = call.caller.is_server() || self.options.superusers.admits(&call.caller);
        if !superuser && !permissions.admit(&call.caller, tags) {
            let tag = tags.first().copied().unwrap_or(ADMIN);
            let who = call.caller.to_string();
            return Err(Error::NoPermissions { name: name.to_string(), tag, who });
        }
        let new = NewChild {
            element: name.last(),
            permissions,
            creator: call.caller.user_id(),
            limits: self.options.limits,
            sticky: false,
        };
        self.rows.create_child(turn, parent, new).await
    }

    /// Returns the first node on the path that has servers, and the rest of the name.
    /// Returns `None` if there is none.
    pub(super) async fn find_servers(
        &self,
        call: &Call,
        name: &NodeName,
    ) -> Result<Option<(Arc<Node>, String)>> {
        loop {
            let mut last = None;
            let mut end = None;
            for prefix in name.prefixes() {
                let Some(node) = self.visit(call, &prefix).await? else {
                    end = Some(prefix);
                    break;
                };
                if node.has_live(self.now()) {
                    self.authorize(&call.caller, &node, &SEE)?;
                    let rest = name.below(&prefix).expect("a prefix is above its name").to_string();
                    return Ok(Some((node, rest)));
                }
                let tags = if prefix == *name { &SEE[..] } else { &PASS };
                self.authorize(&call.caller, &node, tags)?;
                last = Some(node);
            }
            if !self.clear_last(last.as_ref()).await {
                return end.map_or(Ok(None), |end| Err(missing(&end)));
            }
        }
    }
}

fn missing(name: &NodeName) -> Error {
    if name.is_root() {
        return Error::NoSuchNameRoot;
    }
    Error::NoSuchName { name: name.to_string() }
}
