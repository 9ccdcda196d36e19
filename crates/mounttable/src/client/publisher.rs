//! Keeps servers mounted: mounts each server on each name, refreshes the mounts every
//! period while the publisher lives, and unmounts them at its end. A refresh that fails
//! is retried with a growing delay. A mount lasts three periods, so it survives an
//! outage of the naming server of almost two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stele_grpc::Pending;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Namespace;
use crate::error::{Error, Result};
use crate::node::Flags;
use crate::tree::Mount;

pub const PERIOD: Duration = Duration::from_secs(60);
/// The lifetime of a mount in periods.
const PERIODS_ALIVE: u32 = 3;
/// The delay before the first retry of a refresh; it doubles up to a quarter of the
/// period.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The maximum number of concurrent refreshes.
const REFRESHES_MAX: usize = 16;

/// The state of one name and server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub mounted: bool,
    /// The error of the last attempt.
    pub last_error: Option<Error>,
}

/// A name and a server.
type Pair = (String, String);

/// By name and server.
pub type Statuses = BTreeMap<Pair, Status>;

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
    names: BTreeSet<String>,
    servers: BTreeMap<String, Flags>,
    schedule: Schedule,
    statuses: watch::Sender<Statuses>,
}

/// The time at which each pair is mounted next.
struct Schedule {
    period: Duration,
    due: BTreeMap<Pair, Due>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Number of failed attempts since the last success.
    failures: u32,
}

impl Schedule {
    fn new(period: Duration) -> Schedule {
        Schedule { period, due: BTreeMap::new() }
    }

    fn add(&mut self, pair: Pair, now: Instant) {
        self.due.insert(pair, Due { at: now, failures: 0 });
    }

    /// Returns the time at which the next pair is due.
    fn next(&self) -> Option<Instant> {
        self.due.values().map(|due| due.at).min()
    }

    fn due(&self, now: Instant) -> Vec<Pair> {
        let is_due = |(_, due): &(&Pair, &Due)| due.at <= now;
        self.due.iter().filter(is_due).map(|(pair, _)| pair.clone()).collect()
    }

    /// Schedules the next mount of a pair after an attempt.
    fn attempted(&mut self, pair: &Pair, mounted: bool, now: Instant) {
        let Some(due) = self.due.get_mut(pair) else { return };
        let delay = if mounted {
            due.failures = 0;
            self.period
        } else {
            due.failures = due.failures.saturating_add(1);
            let doubled = 1u32.checked_shl(due.failures - 1).unwrap_or(u32::MAX);
            RETRY_FIRST.saturating_mul(doubled).min(self.period / 4)
        };
        due.at = now + delay;
    }
}

impl Publisher {
    /// Creates a publisher that refreshes mounts every `period`; they last three
    /// periods.
    pub fn new(namespace: Arc<Namespace>, period: Duration) -> Publisher {
        let (changes, coming) = mpsc::unbounded_channel();
        let (noted, statuses) = watch::channel(Statuses::new());
        let worker = Worker {
            namespace,
            names: BTreeSet::new(),
            servers: BTreeMap::new(),
            schedule: Schedule::new(period),
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

    /// Returns the current statuses and their changes.
    pub fn statuses(&self) -> watch::Receiver<Statuses> {
        self.statuses.clone()
    }

    /// Unmounts everything once, and stops.
    pub fn stop(self) -> Pending<'static, Statuses> {
        Box::pin(async move {
            drop(self.changes);
            // It ends when the sender of changes is dropped.
            let _ = self.working.await;
            self.statuses.borrow().clone()
        })
    }

    fn change(&self, change: Change) {
        // The receiver lives until the publisher is stopped.
        let _ = self.changes.send(change);
    }
}

impl Worker {
    async fn run(mut self, mut changes: mpsc::UnboundedReceiver<Change>) {
        loop {
            let next = self.schedule.next();
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.change(change).await,
                    None => break,
                },
                () = reached(next) => self.refresh().await,
            }
        }
        for (name, server) in self.pairs() {
            self.unmount(&name, &server).await;
        }
    }

    /// Mounts all pairs that are due.
    async fn refresh(&mut self) {
        let started = Instant::now();
        for pairs in self.schedule.due(started).chunks(REFRESHES_MAX) {
            let mut mounting = JoinSet::new();
            for pair in pairs {
                let (namespace, mount, pair) =
                    (self.namespace.clone(), self.mount_of(pair), pair.clone());
                mounting.spawn(async move { (namespace.mount(&pair.0, &mount).await, pair) });
            }
            while let Some(done) = mounting.join_next().await {
                match done {
                    Ok((mounted, pair)) => self.note(pair, mounted),
                    Err(stopped) => tracing::warn!(%stopped, "a refresh was aborted"),
                }
            }
            // An attempt without a result counts as failed.
            for pair in pairs {
                if self.schedule.due.get(pair).is_some_and(|due| due.at <= started) {
                    self.schedule.attempted(pair, false, started);
                }
            }
        }
    }

    fn pairs(&self) -> Vec<Pair> {
        let with_servers = |name: &String| {
            self.servers.keys().map(|server| (name.clone(), server.clone())).collect()
        };
        self.names.iter().flat_map(|name| -> Vec<_> { with_servers(name) }).collect()
    }

    /// Mounts new pairs immediately and unmounts removed ones.
    async fn change(&mut self, change: Change) {
        let before: BTreeSet<_> = self.pairs().into_iter().collect();
        match change {
            Change::AddName(name) => drop(self.names.insert(name)),
            Change::RemoveName(name) => drop(self.names.remove(&name)),
            Change::AddServer(server, flags) => drop(self.servers.insert(server, flags)),
            Change::RemoveServer(server) => drop(self.servers.remove(&server)),
        }
        let after: BTreeSet<_> = self.pairs().into_iter().collect();
        for pair in before.difference(&after) {
            self.schedule.due.remove(pair);
            self.unmount(&pair.0, &pair.1).await;
        }
        for pair in after.difference(&before) {
            self.schedule.add(pair.clone(), Instant::now());
            let mounted = self.namespace.mount(&pair.0, &self.mount_of(pair)).await;
            self.note(pair.clone(), mounted);
        }
    }

    fn mount_of(&self, (_, server): &Pair) -> Mount {
        let ttl = self.schedule.period.saturating_mul(PERIODS_ALIVE).as_secs();
        let flags = self.servers.get(server).copied().unwrap_or_default();
        Mount { flags, ..Mount::new(server, u32::try_from(ttl).unwrap_or(u32::MAX)) }
    }

    /// Records the result of an attempt to mount a pair.
    fn note<T>(&mut self, pair: Pair, mounted: Result<T>) {
        self.schedule.attempted(&pair, mounted.is_ok(), Instant::now());
        self.statuses.send_if_modified(|statuses| {
            let status = statuses.entry(pair).or_default();
            let before = status.clone();
            status.mounted |= mounted.is_ok();
            status.last_error = mounted.err();
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

/// Waits until a time; forever if there is none.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIODS: u32 = 200;

    /// Simulates one mount through an outage and returns the seconds since the start at
    /// which the name had no live server.
    fn dead_seconds(outage: std::ops::Range<u64>) -> Vec<u64> {
        let start = Instant::now();
        let pair: Pair = ("a".into(), "h:1".into());
        let mut schedule = Schedule::new(PERIOD);
        schedule.add(pair.clone(), start);
        let mut alive_until = 0;
        let mut dead = Vec::new();
        for second in 0..PERIOD.as_secs() * u64::from(PERIODS) {
            let now = start + Duration::from_secs(second);
            if schedule.due(now).contains(&pair) {
                let mounted = !outage.contains(&second);
                schedule.attempted(&pair, mounted, now);
                if mounted {
                    alive_until = second + (PERIOD * PERIODS_ALIVE).as_secs();
                }
            }
            if second > alive_until {
                dead.push(second);
            }
        }
        dead
    }

    #[test]
    fn a_server_stays_mounted_through_missed_refreshes() {
        // An outage of 100 s is survived whenever it starts.
        for begins in 1..=120 {
            assert_eq!(dead_seconds(begins..begins + 100), [] as [u64; 0], "from {begins}");
        }
    }

    #[test]
    fn a_server_is_remounted_soon_after_a_long_outage() {
        let dead = dead_seconds(60..1200);
        assert!(dead.iter().all(|second| (181..1216).contains(second)), "{dead:?}");
        // After a short outage it takes one retry, not a whole period.
        let start = Instant::now();
        let pair: Pair = ("a".into(), "h:1".into());
        let mut schedule = Schedule::new(PERIOD);
        schedule.add(pair.clone(), start);
        for delay in [1, 2, 4, 8, 15, 15] {
            schedule.attempted(&pair, false, start);
            assert_eq!(schedule.next(), Some(start + Duration::from_secs(delay)));
        }
        schedule.attempted(&pair, true, start);
        assert_eq!(schedule.next(), Some(start + PERIOD));
    }
}
