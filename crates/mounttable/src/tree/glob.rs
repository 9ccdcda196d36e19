//! Glob: nodes below a name that match a pattern, told as they are found.
//!
//! Level by level. Children are read many at a time, and the first few alone,
//! so that a first answer does not wait for a hundred rows. Those of a node are
//! taken from it as their turn comes.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::mpsc::Sender;

use super::collect::Due;
use super::walk::SEE;
use super::{Call, Entry, Mounttable};
use crate::access::{ADMIN, READ};
use crate::error::{Error, Result};
use crate::name;
use crate::node::Node;
use crate::node_name::NodeName;
use crate::pattern::Pattern;

/// Nodes that are read at once.
const BATCH_MAX: usize = 256;

/// What Glob tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Entry(Entry),
    /// Something under this name could not be told.
    Error {
        name: String,
        error: Error,
    },
}

/// What is still to be looked at.
enum Open {
    /// A node, and what is left of the pattern there.
    Node(NodeName, Arc<Pattern>),
    Children(Children),
}

/// The children of a node that match, from one on.
struct Children {
    node: Arc<Node>,
    pattern: Arc<Pattern>,
    /// What is left of the pattern at the children.
    tail: Arc<Pattern>,
    last: Option<String>,
}

impl Children {
    fn next(&mut self) -> Option<(NodeName, Arc<Pattern>)> {
        let after = match &self.last {
            Some(last) => Bound::Excluded(&last[..]),
            None => Bound::Unbounded,
        };
        let mut rest = self.node.children.range::<str, _>((after, Bound::Unbounded));
        let (child, _) = rest.find(|(child, _)| self.pattern.matches(child))?;
        self.last = Some(child.clone());
        Some((self.node.name.child(child), self.tail.clone()))
    }
}

/// The caller has gone away.
struct Gone;

struct Search<'a> {
    table: &'a Mounttable,
    call: &'a Call,
    top: NodeName,
    open: VecDeque<Open>,
    out: &'a Sender<Found>,
}

impl Mounttable {
    /// Sends what matches. Only a pattern or name that cannot be used is an
    /// error; all others are told among what is found.
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
        let told = match first {
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
                // That the caller has gone away is nobody's failure.
                let _ = Search { table: self, call, top, open, out }.run().await;
                return Ok(());
            }
        };
        let _ = out.send(told).await;
        Ok(())
    }
}

/// An address with what is left of a name behind it.
fn extended(address: &str, rest: &str) -> String {
    if rest.is_empty() { address.into() } else { name::join_address(address, rest) }
}

impl Search<'_> {
    async fn run(mut self) -> Result<(), Gone> {
        let mut size = 1;
        loop {
            if let Err(error) = self.call.check(&self.top) {
                return self.fail(&self.top.clone(), error).await;
            }
            let batch = self.batch(size);
            if batch.is_empty() {
                return Ok(());
            }
            self.read(batch).await?;
            size = (size * 4).min(BATCH_MAX);
        }
    }

    /// The next nodes to be read, at most so many.
    fn batch(&mut self, size: usize) -> Vec<(NodeName, Arc<Pattern>)> {
        let mut batch = Vec::new();
        while batch.len() < size {
            match self.open.pop_front() {
                Some(Open::Node(name, pattern)) => batch.push((name, pattern)),
                Some(Open::Children(mut children)) => {
                    if let Some(child) = children.next() {
                        batch.push(child);
                        self.open.push_front(Open::Children(children));
                    }
                }
                None => break,
            }
        }
        batch
    }

    async fn read(&mut self, batch: Vec<(NodeName, Arc<Pattern>)>) -> Result<(), Gone> {
        // The one at the top is hot; so are those that many ask for by name.
        if let [(name, pattern)] = &batch[..] {
            return match self.table.rows.get(name).await {
                Ok(Some(node)) => self.look(node, pattern).await,
                Ok(None) => Ok(()),
                Err(error) => self.fail(name, error).await,
            };
        }
        let mut nodes = self.table.rows.read_many(batch.iter().map(|(name, _)| name));
        let asked: HashMap<_, _> = batch.into_iter().collect();
        loop {
            match nodes.next().await {
                Ok(Some(Ok(node))) => {
                    if let Some(pattern) = asked.get(&node.name) {
                        self.look(Arc::new(node), pattern).await?;
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

    /// Tells of a node if it matches, and goes on to its children. Nodes that
    /// the caller may not see are passed over in silence.
    async fn look(&mut self, node: Arc<Node>, pattern: &Arc<Pattern>) -> Result<(), Gone> {
        let Some(node) = self.cleared(node).await? else { return Ok(()) };
        let (table, caller) = (self.table, &self.call.caller);
        if !table.may(caller, &node, &SEE) {
            return Ok(());
        }
        let now = table.now();
        let name = self.relative(&node.name);
        let has_servers = node.has_live(now);
        if has_servers || pattern.elements_left() == 0 {
            self.tell(Found::Entry(Entry::of(&node, name, now))).await?;
        }
        if has_servers || pattern.is_empty() {
            return Ok(());
        }
        let fixed = pattern.fixed();
        if fixed.is_none() && !table.may(caller, &node, &[READ, ADMIN]) {
            let who = caller.to_string();
            let error = Error::NoPermissions { name: node.name.to_string(), tag: READ, who };
            return self.fail(&node.name, error).await;
        }
        let tail = Arc::new(pattern.tail());
        match fixed {
            Some(child) if node.children.contains_key(child) => {
                self.open.push_back(Open::Node(node.name.child(child), tail));
            }
            Some(_) => {}
            None => {
                let pattern = pattern.clone();
                self.open.push_back(Open::Children(Children { node, pattern, tail, last: None }));
            }
        }
        Ok(())
    }

    /// The node once nothing there has expired; `None` if it is gone then.
    async fn cleared(&mut self, node: Arc<Node>) -> Result<Option<Arc<Node>>, Gone> {
        if self.table.due(&node) == Due::Nothing {
            return Ok(Some(node));
        }
        match self.table.visit(self.call, &node.name).await {
            Ok(node) => Ok(node),
            Err(error) => self.fail(&node.name, error).await.map(|()| None),
        }
    }

    fn relative(&self, name: &NodeName) -> String {
        name.below(&self.top).unwrap_or_default().into()
    }

    async fn fail(&mut self, name: &NodeName, error: Error) -> Result<(), Gone> {
        self.tell(Found::Error { name: self.relative(name), error }).await
    }

    async fn tell(&self, found: Found) -> Result<(), Gone> {
        self.out.send(found).await.map_err(|_| Gone)
    }
}
