//! Glob: streams the nodes below a name that match a pattern.
//!
//! The search goes level by level. Children are read many at a time, but the first few
//! alone, so that the first reply does not wait for a hundred rows. References to the
//! children of a node are read in pages: a reference that exists during the whole
//! search is in one of them, because its column does not change.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::Sender;

use super::collect::Garbage;
use super::walk::SEE;
use super::{Call, Entry, Mounttable};
use crate::access::{ADMIN, READ};
use crate::error::{Error, Result};
use crate::name;
use crate::node::{Branch, Node, parse_reference, reference_column};
use crate::node_name::NodeName;
use crate::pattern::Pattern;

/// The maximum number of nodes per read.
const BATCH_MAX: usize = 256;
/// The number of references in the first page.
const PIECE_FIRST: usize = 64;
const PIECE_MAX: usize = 4096;

/// A result of Glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Entry(Entry),
    /// An error at this name.
    Error {
        name: String,
        error: Error,
    },
}

/// An item of the search that is still to be processed.
enum Open {
    /// A node, and the remaining pattern there.
    Node(NodeName, Arc<Pattern>),
    Children(Children),
}

/// The children of a node that match, from one on.
struct Children {
    node: Arc<Node>,
    pattern: Arc<Pattern>,
    /// The remaining pattern at the children.
    tail: Arc<Pattern>,
    piece: VecDeque<NodeName>,
    /// The next page; `None` after the last.
    next: Option<Next>,
    /// Elements already returned: a child that was created again has two references.
    seen: HashSet<String>,
}

/// The start and size of a page.
struct Next {
    after: Option<Bytes>,
    size: usize,
}

impl Children {
    fn new(node: Arc<Node>, pattern: Arc<Pattern>) -> Children {
        let tail = Arc::new(pattern.tail());
        let next = Some(Next { after: None, size: PIECE_FIRST });
        Children { node, pattern, tail, piece: VecDeque::new(), next, seen: HashSet::new() }
    }

    /// Processes a page of up to `size` columns, which is the last unless there is
    /// more.
    fn take(&mut self, columns: &[Bytes], size: usize, more: bool) {
        let elements = columns.iter().filter_map(|column| parse_reference(column));
        for (_, element) in elements.filter(|(_, element)| self.pattern.matches(element)) {
            if self.seen.insert(element.into()) {
                self.piece.push_back(self.node.name.child(element));
            }
        }
        let size = (size * 4).min(PIECE_MAX);
        self.next = more.then(|| Next { after: columns.last().cloned(), size });
    }
}

/// The caller has disconnected.
struct Disconnected;

struct Search<'a> {
    table: &'a Mounttable,
    call: &'a Call,
    top: NodeName,
    open: VecDeque<Open>,
    out: &'a Sender<Found>,
}

impl Mounttable {
    /// Sends matching entries. Only an invalid pattern or name is returned as an error;
    /// all other errors are sent among the results.
    pub async fn glob(
        &self,
        call: &Call,
        name: &str,
        pattern: &str,
        out: &Sender<Found>,
    ) -> Result<()> {
        let pattern = Pattern::parse(pattern)?;
        let top = NodeName::parse(name)?;
        let first = self.find_servers(call, &top).await;
        let reply = match first {
            Err(error) => Found::Error { name: String::new(), error },
            Ok(Some((node, rest))) => {
                let mut entry = Entry::of(&node, "", self.now());
                for server in &mut entry.servers {
                    server.address = extended(&server.address, &rest);
                }
                Found::Entry(entry)
            }
            Ok(None) => {
                let open = VecDeque::from([Open::Node(top.clone(), Arc::new(pattern))]);
                // A caller that disconnects is not an error.
                let _ = Search { table: self, call, top, open, out }.run().await;
                return Ok(());
            }
        };
        let _ = out.send(reply).await;
        Ok(())
    }
}

/// Returns an address with the rest of a name appended.
fn extended(address: &str, rest: &str) -> String {
    if rest.is_empty() { address.into() } else { name::join_address(address, rest) }
}

impl Search<'_> {
    async fn run(mut self) -> Result<(), Disconnected> {
        let mut size = 1;
        loop {
            if let Err(error) = self.call.check(&self.top) {
                return self.fail(&self.top.clone(), error).await;
            }
            let batch = self.batch(size).await?;
            if batch.is_empty() {
                return Ok(());
            }
            self.read(batch).await?;
            size = (size * 4).min(BATCH_MAX);
        }
    }

    /// Returns the next nodes to read, at most `size`.
    async fn batch(&mut self, size: usize) -> Result<Vec<(NodeName, Arc<Pattern>)>, Disconnected> {
        let mut batch = Vec::new();
        while batch.len() < size {
            match self.open.pop_front() {
                Some(Open::Node(name, pattern)) => batch.push((name, pattern)),
                Some(Open::Children(mut children)) => {
                    if let Some(child) = children.piece.pop_front() {
                        batch.push((child, children.tail.clone()));
                    } else if !batch.is_empty() && children.next.is_some() {
                        // Return the nodes found so far instead of waiting for more.
                        self.open.push_front(Open::Children(children));
                        break;
                    } else if let Some(next) = children.next.take() {
                        self.read_piece(&mut children, next).await?;
                    } else {
                        continue;
                    }
                    self.open.push_front(Open::Children(children));
                }
                None => break,
            }
        }
        Ok(batch)
    }

    async fn read_piece(
        &mut self,
        children: &mut Children,
        next: Next,
    ) -> Result<(), Disconnected> {
        let (rows, name) = (&self.table.rows, &children.node.name);
        match rows.references_after(name, next.after.as_ref(), next.size).await {
            Ok(columns) => {
                children.take(&columns, next.size, columns.len() >= next.size);
                Ok(())
            }
            Err(error) => self.fail(&children.node.name, error).await,
        }
    }

    async fn read(&mut self, batch: Vec<(NodeName, Arc<Pattern>)>) -> Result<(), Disconnected> {
        // A single node is probably hot, so it is read through the cache.
        if let [(name, pattern)] = &batch[..] {
            return match self.table.rows.get(name).await {
                Ok(Some(node)) => self.visit(node, None, pattern).await,
                Ok(None) => Ok(()),
                Err(error) => self.fail(name, error).await,
            };
        }
        // If the children are not listed, one of them shows that a node is not empty.
        let lists = batch.iter().any(|(_, pattern)| !pattern.is_empty());
        let size = if lists { PIECE_FIRST } else { 1 };
        let mut branches =
            self.table.rows.read_beginnings(batch.iter().map(|(name, _)| name), size);
        let patterns: HashMap<_, _> = batch.into_iter().collect();
        loop {
            match branches.next().await {
                Ok(Some(Ok(branch))) => {
                    if let Some(pattern) = patterns.get(&branch.node.name) {
                        let node = branch.node.clone();
                        self.visit(node, Some((branch, size)), pattern).await?;
                    }
                }
                Ok(Some(Err((key, error)))) => {
                    let name = NodeName::from_row_key(&key).unwrap_or_else(NodeName::root);
                    self.fail(&name, error).await?;
                }
                Ok(None) => return Ok(()),
                Err(error) => return self.fail(&self.top.clone(), error).await,
            }
        }
    }

    /// Reports a node if it matches, and continues with its children, of which the
    /// first ones may be known. Nodes that the caller may not see are skipped silently.
    async fn visit(
        &mut self,
        node: Arc<Node>,
        beginning: Option<(Branch, usize)>,
        pattern: &Arc<Pattern>,
    ) -> Result<(), Disconnected> {
        let has_children = beginning.as_ref().map(|(branch, _)| !branch.children.is_empty());
        let Some(node) = self.cleared(node, has_children).await? else { return Ok(()) };
        let (table, caller) = (self.table, &self.call.caller);
        if !table.may(caller, &node, &SEE) {
            return Ok(());
        }
        let now = table.now();
        let name = self.relative(&node.name);
        let has_servers = node.has_live(now);
        if has_servers || pattern.elements_left() == 0 {
            self.send(Found::Entry(Entry::of(&node, name, now))).await?;
        }
        if has_servers || pattern.is_empty() {
            return Ok(());
        }
        if let Some(child) = pattern.fixed() {
            let tail = Arc::new(pattern.tail());
            self.open.push_back(Open::Node(node.name.child(child), tail));
            return Ok(());
        }
        if !table.may(caller, &node, &[READ, ADMIN]) {
            let who = caller.to_string();
            let error = Error::NoPermissions { name: node.name.to_string(), tag: READ, who };
            return self.fail(&node.name, error).await;
        }
        let mut children = Children::new(node, pattern.clone());
        if let Some((branch, size)) = beginning {
            children.take(&columns(&branch), size, branch.columns >= size);
        }
        self.open.push_back(Open::Children(children));
        Ok(())
    }

    /// Returns the node after removing what has expired; `None` if the node was
    /// removed.
    async fn cleared(
        &mut self,
        node: Arc<Node>,
        has_children: Option<bool>,
    ) -> Result<Option<Arc<Node>>, Disconnected> {
        let is_kept = match self.table.garbage(&node) {
            Garbage::None => true,
            Garbage::Servers => false,
            // The walk to the top has already removed it if it was garbage.
            Garbage::Node => node.name == self.top || has_children == Some(true),
        };
        if is_kept {
            return Ok(Some(node));
        }
        match self.table.find_last(self.call, &node.name).await {
            Ok(node) => Ok(node),
            Err(error) => self.fail(&node.name, error).await.map(|()| None),
        }
    }

    fn relative(&self, name: &NodeName) -> String {
        name.below(&self.top).unwrap_or_default().into()
    }

    async fn fail(&mut self, name: &NodeName, error: Error) -> Result<(), Disconnected> {
        self.send(Found::Error { name: self.relative(name), error }).await
    }

    async fn send(&self, found: Found) -> Result<(), Disconnected> {
        self.out.send(found).await.map_err(|_| Disconnected)
    }
}

/// Returns the columns of references in order.
fn columns(branch: &Branch) -> Vec<Bytes> {
    let children = branch.children.iter();
    let references = children.flat_map(|(element, all)| all.iter().map(move |one| (one, element)));
    let mut columns: Vec<_> =
        references.map(|(reference, element)| reference_column(&reference.id, element)).collect();
    columns.sort();
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pattern: &str, pieces: &[&[&str]], size: usize) -> (Vec<String>, bool) {
        let pattern = Arc::new(Pattern::parse(pattern).unwrap());
        let mut children = Children::new(Arc::new(Node::sample("a")), pattern);
        for piece in pieces {
            let columns: Vec<_> =
                piece.iter().map(|column| Bytes::copy_from_slice(column.as_bytes())).collect();
            children.take(&columns, size, columns.len() >= size);
        }
        let names = children.piece.iter().map(|name| name.as_str().to_string()).collect();
        (names, children.next.is_some())
    }

    #[test]
    fn a_child_with_two_references_is_returned_once_and_a_short_page_is_the_last() {
        let (names, more) =
            pieces("*", &[&["00000001x", "00000002y"], &["00000003x", "00000004z"]], 2);
        assert_eq!((names, more), (vec!["a/x".into(), "a/y".into(), "a/z".into()], true));
        let (names, more) = pieces("[yz]", &[&["00000001x", "00000002y"], &["00000003z"]], 2);
        assert_eq!((names, more), (vec!["a/y".into(), "a/z".into()], false));
    }
}
