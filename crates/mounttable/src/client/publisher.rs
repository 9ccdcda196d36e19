//! Keeping servers mounted: each name with each server, again and again while
//! the publisher lives, and unmounted at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Namespace;
use crate::error::Error;
use crate::node::Flags;
use crate::tree::Mount;

/// What a mount outlives its next refresh by.
const SLACK: Duration = Duration::from_secs(20);
pub const PERIOD: Duration = Duration::from_secs(60);

/// How it stands with one name and one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub mounted: bool,
    /// What went wrong the last time.
    pub last_error: Option<Error>,
}

/// By name and server.
pub type Statuses = BTreeMap<(String, String), Status>;

enum Change {
    AddName(String),
    RemoveName(String),
    AddServer(String, Flags),
    RemoveServer(String),
}

/// Publishes servers under names until it is stopped.
pub struct Publisher {
    changes: mpsc::UnboundedSender<Change>,
    statuses: watch::Receiver<Statuses>,
    working: JoinHandle<()>,
}

struct Worker {
    namespace: Arc<Namespace>,
    period: Duration,
    names: BTreeSet<String>,
    servers: BTreeMap<String, Flags>,
    statuses: watch::Sender<Statuses>,
}

impl Publisher {
    /// Refreshes mounts every `period`; they last a little longer.
    pub fn new(namespace: Arc<Namespace>, period: Duration) -> Publisher {
        let (changes, coming) = mpsc::unbounded_channel();
        let (noted, statuses) = watch::channel(Statuses::new());
        let worker = Worker {
            namespace,
            period,
            names: BTreeSet::new(),
            servers: BTreeMap::new(),
            statuses: noted,
        };
        Publisher { changes, statuses, working: tokio::spawn(worker.run(coming)) }
    }

    pub fn add_name(&self, name: &str) {
        self.change(Change::AddName(name.into()));
    }

    pub fn remove_name(&self, name: &str) {
        self.change(Change::RemoveName(name.into()));
    }

    pub fn add_server(&self, server: &str, flags: Flags) {
        self.change(Change::AddServer(server.into(), flags));
    }

    pub fn remove_server(&self, server: &str) {
        self.change(Change::RemoveServer(server.into()));
    }

    /// How it stands, and each change of that.
    pub fn statuses(&self) -> watch::Receiver<Statuses> {
        self.statuses.clone()
    }

    /// Unmounts everything, each once, and ends.
    pub async fn stop(self) -> Statuses {
        drop(self.changes);
        // It ends when nobody can change it any more.
        let _ = self.working.await;
        self.statuses.borrow().clone()
    }

    fn change(&self, change: Change) {
        // The worker ends only after this.
        let _ = self.changes.send(change);
    }
}

impl Worker {
    async fn run(mut self, mut changes: mpsc::UnboundedReceiver<Change>) {
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.change(change).await,
                    None => break,
                },
                _ = ticks.tick() => {
                    for (name, server) in self.pairs() {
                        self.mount(&name, &server).await;
                    }
                }
            }
        }
        for (name, server) in self.pairs() {
            self.unmount(&name, &server).await;
        }
    }

    fn pairs(&self) -> Vec<(String, String)> {
        let with_servers = |name: &String| {
            self.servers.keys().map(|server| (name.clone(), server.clone())).collect()
        };
        self.names.iter().flat_map(|name| -> Vec<_> { with_servers(name) }).collect()
    }

    /// What is new is mounted at once, what is gone is unmounted.
    async fn change(&mut self, change: Change) {
        let before: BTreeSet<_> = self.pairs().into_iter().collect();
        match change {
            Change::AddName(name) => drop(self.names.insert(name)),
            Change::RemoveName(name) => drop(self.names.remove(&name)),
            Change::AddServer(server, flags) => drop(self.servers.insert(server, flags)),
            Change::RemoveServer(server) => drop(self.servers.remove(&server)),
        }
        let after: BTreeSet<_> = self.pairs().into_iter().collect();
        for (name, server) in before.difference(&after) {
            self.unmount(name, server).await;
        }
        for (name, server) in after.difference(&before) {
            self.mount(name, server).await;
        }
    }

    async fn mount(&self, name: &str, server: &str) {
        let ttl = u32::try_from((self.period + SLACK).as_secs()).unwrap_or(u32::MAX);
        let flags = self.servers.get(server).copied().unwrap_or_default();
        let mount = Mount { flags, ..Mount::new(server, ttl) };
        let done = self.namespace.mount(name, &mount).await;
        self.statuses.send_if_modified(|statuses| {
            let status = statuses.entry((name.into(), server.into())).or_default();
            let before = status.clone();
            status.mounted |= done.is_ok();
            status.last_error = done.err();
            *status != before
        });
    }

    async fn unmount(&self, name: &str, server: &str) {
        let done = self.namespace.unmount(name, server).await;
        self.statuses.send_modify(|statuses| match done {
            Ok(()) => drop(statuses.remove(&(name.into(), server.into()))),
            Err(error) => {
                let status = statuses.entry((name.into(), server.into())).or_default();
                status.last_error = Some(error);
            }
        });
    }
}
