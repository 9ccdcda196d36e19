//! Watch: what a subtree is, and each change of it.
//!
//! Changes made through this process are heard of at once. Those of others are
//! found by asking for the versions of all watched rows again and again, which
//! any Bigtable can answer. Expiry changes no row, so a timer tells of it.
//! Nothing is kept between watches: a caller that comes back says what it
//! knows, and hears the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, MissedTickBehavior};

use super::walk::SEE;
use super::{Call, Entry, Mounttable};
use crate::access::{ADMIN, READ};
use crate::error::{Error, Result};
use crate::node::{Branch, Version};
use crate::node_name::NodeName;

/// Nodes of one watch. Each costs a small read every interval.
const NODES_MAX: usize = 100_000;
const BATCH: usize = 1000;

/// A node as a watcher was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub id: String,
    pub version: String,
}

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Change(Box<Change>),
    /// All that was there at the beginning has been told.
    Synced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub node: Known,
    pub deleted: bool,
    pub entry: Entry,
    pub children: Vec<String>,
    pub sticky: bool,
}

/// What was last told of a node.
struct Told {
    id: String,
    version: String,
    /// The deadlines of servers that were alive; `None` if an earlier watch
    /// told it.
    deadlines: Option<Vec<i64>>,
    children: Vec<NodeName>,
}

struct Watch<'a> {
    table: &'a Mounttable,
    call: &'a Call,
    top: NodeName,
    told: BTreeMap<NodeName, Told>,
    /// Children that somebody refers to and that have no row (yet).
    awaited: BTreeSet<NodeName>,
    out: &'a Sender<Seen>,
}

/// Why a watch ends.
enum End {
    Gone,
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Failed(error)
    }
}

impl Mounttable {
    /// Tells of a subtree until the caller goes away. A node that is not there
    /// yet can be watched.
    pub async fn watch(
        self: &Arc<Mounttable>,
        call: &Call,
        name: &str,
        known: Vec<Known>,
        out: &Sender<Seen>,
    ) -> Result<()> {
        let top = NodeName::parse(name)?;
        if known.len() > NODES_MAX {
            return Err(Error::TooMany { what: "the number of known nodes", limit: NODES_MAX });
        }
        match self.find(call, &top).await {
            Ok(path) => self.authorize(&call.caller, path.last(), &SEE)?,
            Err(Error::NoSuchName { .. }) => {}
            Err(error) => return Err(error),
        }
        // From before anything is read, so that nothing falls in between.
        let changes = self.rows.changes();
        let mut told = BTreeMap::new();
        for known in known {
            let name = NodeName::parse(&known.name)?;
            if name.below(&top).is_some() {
                let Known { id, version, .. } = known;
                told.insert(name, Told { id, version, deadlines: None, children: vec![] });
            }
        }
        let watch = Watch { table: self, call, top, told, awaited: BTreeSet::new(), out };
        match watch.run(changes).await {
            Ok(()) | Err(End::Gone) => Ok(()),
            Err(End::Failed(error)) => Err(error),
        }
    }
}

impl Watch<'_> {
    async fn run(mut self, mut changes: Receiver<NodeName>) -> Result<(), End> {
        let known: Vec<_> = self.told.keys().cloned().chain([self.top.clone()]).collect();
        self.look(known).await?;
        self.tell(Seen::Synced).await?;
        let mut ticks = tokio::time::interval(self.table.options.watch_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            let expiry = self.next_expiry();
            tokio::select! {
                () = self.out.closed() => return Err(End::Gone),
                changed = changes.recv() => match changed {
                    Ok(name) => {
                        let mut names = BTreeSet::from([name]);
                        while let Ok(name) = changes.try_recv() {
                            names.insert(name);
                        }
                        names.retain(|name| name.below(&self.top).is_some());
                        self.look(names).await?;
                    }
                    Err(RecvError::Lagged(_)) => self.poll().await?,
                    Err(RecvError::Closed) => return Err(End::Gone),
                },
                _ = ticks.tick() => self.poll().await?,
                () = tokio::time::sleep_until(expiry) => {
                    let now = self.table.now();
                    let is_due = |told: &Told| {
                        told.deadlines.iter().flatten().any(|deadline| *deadline < now)
                    };
                    let due = self.told.iter().filter(|(_, told)| is_due(told));
                    let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();
                    self.look(due).await?;
                }
            }
        }
    }

    /// Asks for the versions of all watched rows and looks at those that are
    /// not as they were told.
    async fn poll(&mut self) -> Result<(), End> {
        let mut names: BTreeSet<_> = self.told.keys().chain(&self.awaited).cloned().collect();
        names.insert(self.top.clone());
        let names: Vec<_> = names.into_iter().collect();
        let mut changed = Vec::new();
        for batch in names.chunks(BATCH) {
            let mut found: BTreeMap<NodeName, (String, Version)> = BTreeMap::new();
            for (name, id, version) in self.table.rows.versions(batch).await? {
                found.insert(name, (id, version));
            }
            changed
                .extend(batch.iter().filter(|name| !self.is_told(name, found.get(name))).cloned());
        }
        self.look(changed).await
    }

    fn is_told(&self, name: &NodeName, found: Option<&(String, Version)>) -> bool {
        match (self.told.get(name), found) {
            (None, None) => true,
            (Some(told), Some((id, version))) => {
                told.id == *id && told.version == version.to_string()
            }
            _ => false,
        }
    }

    /// Reads nodes, tells what is new of them, and goes on to children that
    /// were not known.
    async fn look(&mut self, names: impl IntoIterator<Item = NodeName>) -> Result<(), End> {
        let mut open: Vec<NodeName> = names.into_iter().collect();
        let mut seen = BTreeSet::new();
        while !open.is_empty() {
            open.sort();
            open.dedup();
            open.retain(|name| seen.insert(name.clone()));
            let batch: Vec<_> = open.drain(..open.len().min(BATCH)).collect();
            let mut missing: BTreeSet<_> = batch.iter().cloned().collect();
            let mut branches = self.table.rows.read_branches(&batch);
            while let Some(read) = branches.next().await? {
                // Damaged rows are for fsck; here they are no nodes.
                let Ok(branch) = read else { continue };
                missing.remove(&branch.node.name);
                let children = self.note(&branch).await?;
                open.extend(children);
            }
            for name in missing {
                self.note_missing(&name, &mut open).await?;
            }
            if self.told.len() + self.awaited.len() > NODES_MAX {
                let what = "the number of nodes below the name";
                return Err(Error::TooMany { what, limit: NODES_MAX }.into());
            }
        }
        Ok(())
    }

    /// Tells of a node unless it was told as it is. Gives children that were
    /// not known before.
    async fn note(&mut self, branch: &Branch) -> Result<Vec<NodeName>, End> {
        let node = &branch.node;
        let (table, caller) = (self.table, &self.call.caller);
        if !table.may(caller, node, &SEE) {
            return self.forget(&node.name).await.map(|()| Vec::new());
        }
        let now = table.now();
        let deadlines: Vec<_> = node.live(now).map(|server| server.deadline_micros).collect();
        let version = node.version.to_string();
        let same = self.told.get(&node.name).is_some_and(|told| {
            let same_servers = match &told.deadlines {
                Some(told) => *told == deadlines,
                None => deadlines.len() == node.servers.len(),
            };
            told.id == node.id && told.version == version && same_servers
        });
        if self.told.get(&node.name).is_some_and(|told| told.id != node.id) {
            self.forget(&node.name).await?;
        }
        let lists = table.may(caller, node, &[READ, ADMIN]);
        let names: Vec<String> =
            if lists { branch.children.keys().cloned().collect() } else { vec![] };
        let children: Vec<_> = names.iter().map(|child| node.name.child(child)).collect();
        // Children are in order, as the row has them.
        let before = self.told.get(&node.name).map(|told| told.children.clone());
        for gone in
            before.into_iter().flatten().filter(|child| children.binary_search(child).is_err())
        {
            self.awaited.remove(&gone);
        }
        let is_new =
            |child: &&NodeName| !self.told.contains_key(child) && !self.awaited.contains(child);
        let new: Vec<_> = children.iter().filter(is_new).cloned().collect();
        self.awaited.extend(new.iter().cloned());
        self.awaited.remove(&node.name);
        let id = node.id.clone();
        let known = Known { name: node.name.as_str().into(), id, version: version.clone() };
        self.told.insert(
            node.name.clone(),
            Told { id: node.id.clone(), version, deadlines: Some(deadlines), children },
        );
        if !same {
            let entry = Entry::of(node, node.name.as_str(), now);
            let sticky = node.sticky;
            let change = Change { node: known, deleted: false, entry, children: names, sticky };
            self.tell(Seen::Change(Box::new(change))).await?;
        }
        Ok(new)
    }

    /// A row is not there. If it was, its parent has changed without a new
    /// version, so that is looked at too.
    async fn note_missing(&mut self, name: &NodeName, open: &mut Vec<NodeName>) -> Result<(), End> {
        if !self.told.contains_key(name) {
            return Ok(());
        }
        self.forget(name).await?;
        let parent = name.parent().filter(|parent| self.told.contains_key(parent));
        if let Some(parent) = parent {
            self.awaited.insert(name.clone());
            open.push(parent);
        }
        Ok(())
    }

    /// Tells that a node is gone, if it was told of.
    async fn forget(&mut self, name: &NodeName) -> Result<(), End> {
        let Some(told) = self.told.remove(name) else { return Ok(()) };
        let node = Known { name: name.as_str().into(), id: told.id, version: told.version };
        let entry = Entry { name: name.as_str().into(), ..Entry::default() };
        let change = Change { node, deleted: true, entry, children: vec![], sticky: false };
        self.tell(Seen::Change(Box::new(change))).await
    }

    /// When the next server of a watched node expires.
    fn next_expiry(&self) -> Instant {
        let deadlines = self.told.values().flat_map(|told| told.deadlines.iter().flatten());
        let wait = match deadlines.min() {
            // Alive up to and including the deadline.
            Some(deadline) => (deadline - self.table.now() + 1).max(0),
            None => i64::MAX,
        };
        let wait = Duration::from_micros(wait.unsigned_abs());
        Instant::now() + wait.min(Duration::from_secs(3600))
    }

    async fn tell(&self, seen: Seen) -> Result<(), End> {
        self.out.send(seen).await.map_err(|_| End::Gone)
    }
}
