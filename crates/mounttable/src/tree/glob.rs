//! Glob: nodes below a name that match a pattern, told as they are found.
//!
//! Level by level. Children are read many at a time, and the first alone, so
//! that a first answer does not wait for a hundred rows.

use std::collections::VecDeque;
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

/// A node that may match.
struct Candidate {
    name: NodeName,
    pattern: Pattern,
}

/// The caller has gone away.
struct Gone;

struct Search<'a> {
    table: &'a Mounttable,
    call: &'a Call,
    top: NodeName,
    open: VecDeque<Candidate>,
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
                let open = VecDeque::from([Candidate { name: top.clone(), pattern }]);
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
        let mut batch_size = 1;
        while !self.open.is_empty() {
            if let Err(error) = self.call.check(&self.top) {
                return self.fail(&self.top.clone(), error).await;
            }
            let size = batch_size.min(self.open.len());
            let batch: Vec<_> = self.open.drain(..size).collect();
            self.read(batch).await?;
            batch_size = (batch_size * 4).min(BATCH_MAX);
        }
        Ok(())
    }

    async fn read(&mut self, batch: Vec<Candidate>) -> Result<(), Gone> {
        // The one at the top is hot; so are those that many ask for by name.
        if let [only] = &batch[..] {
            return match self.table.rows.get(&only.name).await {
                Ok(Some(node)) => self.look(node, &only.pattern).await,
                Ok(None) => Ok(()),
                Err(error) => self.fail(&only.name, error).await,
            };
        }
        let mut nodes = self.table.rows.read_many(batch.iter().map(|candidate| &candidate.name));
        loop {
            match nodes.next().await {
                Ok(Some(Ok(node))) => {
                    let asked = batch.iter().find(|candidate| candidate.name == node.name);
                    if let Some(asked) = asked {
                        self.look(Arc::new(node), &asked.pattern).await?;
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
    async fn look(&mut self, node: Arc<Node>, pattern: &Pattern) -> Result<(), Gone> {
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
        let tail = pattern.tail();
        let candidate =
            |child: &String| Candidate { name: node.name.child(child), pattern: tail.clone() };
        match fixed {
            Some(child) => {
                let known = node.children.get_key_value(child);
                self.open.extend(known.map(|(child, _)| candidate(child)));
            }
            None => {
                let matching = node.children.keys().filter(|child| pattern.matches(child));
                self.open.extend(matching.map(candidate));
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
