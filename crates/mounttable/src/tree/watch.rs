//! Watch: the current state of a subtree, and each change of it.
//!
//! Changes made by this process are reported immediately. Those of others are found by
//! polling the versions of all watched rows, which works with any Bigtable. Expiry
//! changes no row, so it is detected with a timer. No state is kept between watches: a
//! caller that reconnects sends what it knows, and receives the differences.

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

/// The maximum number of nodes of one watch. Each costs a small read every interval.
const NODES_MAX: usize = 100_000;
const BATCH: usize = 1000;

/// A node as reported to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    pub name: String,
    pub id: String,
    pub version: String,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    Change(Box<Change>),
    /// The initial state has been reported completely.
    Synced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub node: KnownNode,
    pub deleted: bool,
    pub entry: Entry,
    pub children: Vec<String>,
    pub sticky: bool,
}

/// The last reported state of a node.
struct Reported {
    id: String,
    version: String,
    /// The deadlines of live servers; `None` if the node was reported by an earlier
    /// watch.
    deadlines: Option<Vec<i64>>,
    children: Vec<NodeName>,
}

struct Watch<'a> {
    table: &'a Mounttable,
    call: &'a Call,
    top: NodeName,
    reported: BTreeMap<NodeName, Reported>,
    /// Children that a node refers to and that have no row (yet).
    awaited: BTreeSet<NodeName>,
    out: &'a Sender<WatchEvent>,
}

/// The reason why a watch ends.
enum End {
    Disconnected,
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Failed(error)
    }
}

impl Mounttable {
    /// Reports changes of a subtree until the caller disconnects. The node need not
    /// exist yet.
    pub async fn watch(
        self: &Arc<Mounttable>,
        call: &Call,
        name: &str,
        known: Vec<KnownNode>,
        out: &Sender<WatchEvent>,
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
        // Subscribe before anything is read, so that no change is missed.
        let changes = self.rows.changes();
        let mut reported = BTreeMap::new();
        for known in known {
            let name = NodeName::parse(&known.name)?;
            if name.below(&top).is_some() {
                let KnownNode { id, version, .. } = known;
                reported.insert(name, Reported { id, version, deadlines: None, children: vec![] });
            }
        }
        let watch = Watch { table: self, call, top, reported, awaited: BTreeSet::new(), out };
        match watch.run(changes).await {
            Ok(()) | Err(End::Disconnected) => Ok(()),
            Err(End::Failed(error)) => Err(error),
        }
    }
}

impl Watch<'_> {
    async fn run(mut self, mut changes: Receiver<NodeName>) -> Result<(), End> {
        let known: Vec<_> = self.reported.keys().cloned().chain([self.top.clone()]).collect();
        self.read(known).await?;
        self.send(WatchEvent::Synced).await?;
        let mut ticks = tokio::time::interval(self.table.options.watch_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            let expiry = self.next_expiry();
            tokio::select! {
                () = self.out.closed() => return Err(End::Disconnected),
                changed = changes.recv() => match changed {
                    Ok(name) => {
                        let mut names = BTreeSet::from([name]);
                        while let Ok(name) = changes.try_recv() {
                            names.insert(name);
                        }
                        names.retain(|name| name.below(&self.top).is_some());
                        self.read(names).await?;
                    }
                    Err(RecvError::Lagged(_)) => self.poll().await?,
                    Err(RecvError::Closed) => return Err(End::Disconnected),
                },
                _ = ticks.tick() => self.poll().await?,
                () = tokio::time::sleep_until(expiry) => {
                    let now = self.table.now();
                    let is_due = |reported: &Reported| {
                        reported.deadlines.iter().flatten().any(|deadline| *deadline < now)
                    };
                    let due = self.reported.iter().filter(|(_, reported)| is_due(reported));
                    let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();
                    self.read(due).await?;
                }
            }
        }
    }

    /// Polls the versions of all watched rows and reads those that differ from the
    /// reported ones.
    async fn poll(&mut self) -> Result<(), End> {
        let mut names: BTreeSet<_> = self.reported.keys().chain(&self.awaited).cloned().collect();
        names.insert(self.top.clone());
        let names: Vec<_> = names.into_iter().collect();
        let mut changed = Vec::new();
        for batch in names.chunks(BATCH) {
            let mut found: BTreeMap<NodeName, (String, Version)> = BTreeMap::new();
            for (name, id, version) in self.table.rows.versions(batch).await? {
                found.insert(name, (id, version));
            }
            changed.extend(
                batch.iter().filter(|name| !self.is_reported(name, found.get(name))).cloned(),
            );
        }
        self.read(changed).await
    }

    fn is_reported(&self, name: &NodeName, found: Option<&(String, Version)>) -> bool {
        match (self.reported.get(name), found) {
            (None, None) => true,
            (Some(reported), Some((id, version))) => {
                reported.id == *id && reported.version == version.to_string()
            }
            _ => false,
        }
    }

    /// Reads nodes, reports their changes, and continues with children that were not
    /// known.
    async fn read(&mut self, names: impl IntoIterator<Item = NodeName>) -> Result<(), End> {
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
                // Damaged rows are left to fsck; here they are ignored.
                let Ok(branch) = read else { continue };
                missing.remove(&branch.node.name);
                let children = self.observe(&branch).await?;
                open.extend(children);
            }
            for name in missing {
                self.observe_missing(&name, &mut open).await?;
            }
            if self.reported.len() + self.awaited.len() > NODES_MAX {
                let what = "the number of nodes below the name";
                return Err(Error::TooMany { what, limit: NODES_MAX }.into());
            }
        }
        Ok(())
    }

    /// Reports a node if it has changed. Returns children that were not known before.
    async fn observe(&mut self, branch: &Branch) -> Result<Vec<NodeName>, End> {
        let node = &branch.node;
        let (table, caller) = (self.table, &self.call.caller);
        if !table.may(caller, node, &SEE) {
            return self.forget(&node.name).await.map(|()| Vec::new());
        }
        let now = table.now();
        let deadlines: Vec<_> = node.live(now).map(|server| server.deadline_micros).collect();
        let version = node.version.to_string();
        let same = self.reported.get(&node.name).is_some_and(|reported| {
            let same_servers = match &reported.deadlines {
                Some(reported) => *reported == deadlines,
                None => deadlines.len() == node.servers.len(),
            };
            reported.id == node.id && reported.version == version && same_servers
        });
        if self.reported.get(&node.name).is_some_and(|reported| reported.id != node.id) {
            self.forget(&node.name).await?;
        }
        let lists = table.may(caller, node, &[READ, ADMIN]);
        let names: Vec<String> =
            if lists { branch.children.keys().cloned().collect() } else { vec![] };
        let children: Vec<_> = names.iter().map(|child| node.name.child(child)).collect();
        // The children are sorted like in the row.
        let before = self.reported.get(&node.name).map(|reported| reported.children.clone());
        for gone in
            before.into_iter().flatten().filter(|child| children.binary_search(child).is_err())
        {
            self.awaited.remove(&gone);
        }
        let is_new =
            |child: &&NodeName| !self.reported.contains_key(child) && !self.awaited.contains(child);
        let new: Vec<_> = children.iter().filter(is_new).cloned().collect();
        self.awaited.extend(new.iter().cloned());
        self.awaited.remove(&node.name);
        let id = node.id.clone();
        let known = KnownNode { name: node.name.as_str().into(), id, version: version.clone() };
        self.reported.insert(
            node.name.clone(),
            Reported { id: node.id.clone(), version, deadlines: Some(deadlines), children },
        );
        if !same {
            let entry = Entry::of(node, node.name.as_str(), now);
            let sticky = node.sticky;
            let change = Change { node: known, deleted: false, entry, children: names, sticky };
            self.send(WatchEvent::Change(Box::new(change))).await?;
        }
        Ok(new)
    }

    /// Handles a missing row. If it existed, its parent has changed without a new
    /// version, so the parent is read too.
    async fn observe_missing(
        &mut self,
        name: &NodeName,
        open: &mut Vec<NodeName>,
    ) -> Result<(), End> {
        if !self.reported.contains_key(name) {
            return Ok(());
        }
        self.forget(name).await?;
        let parent = name.parent().filter(|parent| self.reported.contains_key(parent));
        if let Some(parent) = parent {
            self.awaited.insert(name.clone());
            open.push(parent);
        }
        Ok(())
    }

    /// Reports that a node was deleted, if it was reported before.
    async fn forget(&mut self, name: &NodeName) -> Result<(), End> {
        let Some(reported) = self.reported.remove(name) else { return Ok(()) };
        let node =
            KnownNode { name: name.as_str().into(), id: reported.id, version: reported.version };
        let entry = Entry { name: name.as_str().into(), ..Entry::default() };
        let change = Change { node, deleted: true, entry, children: vec![], sticky: false };
        self.send(WatchEvent::Change(Box::new(change))).await
    }

    /// Returns the time at which the next server of a watched node expires.
    fn next_expiry(&self) -> Instant {
        let deadlines =
            self.reported.values().flat_map(|reported| reported.deadlines.iter().flatten());
        let wait = match deadlines.min() {
            // Alive up to and including the deadline.
            Some(deadline) => (deadline - self.table.now() + 1).max(0),
            None => i64::MAX,
        };
        let wait = Duration::from_micros(wait.unsigned_abs());
        Instant::now() + wait.min(Duration::from_secs(3600))
    }

    async fn send(&self, event: WatchEvent) -> Result<(), End> {
        self.out.send(event).await.map_err(|_| End::Disconnected)
    }
}
