//! The tree of names: the operations of a naming server.
//!
//! An operation walks down the name (`walk`), checks access, changes one node, and
//! starts again if another operation was faster. On the way it removes what has expired
//! (`collect`), if rows can be written (`clearing`); `sweep` does so for nodes that
//! nobody visits. The operations are in `mounting`, `removing`, `guarding`, `resolve`,
//! `glob` and `watch`; `setup` creates the tables and the first nodes.

mod clearing;
mod collect;
mod glob;
mod guarding;
mod mounting;
mod removing;
mod resolve;
mod setup;
mod sweep;
mod walk;
mod watch;

use std::sync::{Arc, Weak};
use std::time::Duration;

use stele_bigtable_client::Client;
use stele_grpc::backoff;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use self::clearing::Clearing;
pub use self::glob::Found;
pub use self::mounting::{FOREVER_MICROS, Mount};
pub use self::setup::{FirstNodes, create_tables};
pub use self::watch::{Change, KnownNode, WatchEvent};
use crate::access::AccessList;
use crate::blessing::Caller;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::node::{Flags, Node, Server};
use crate::rows::{CacheOptions, Limits, NodeRows};

/// The default name of the nodes table.
pub const TABLE: &str = "mounttable";

/// How long an operation is retried if its caller sets no deadline.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
/// The maximum pause before the first retry of an operation; it doubles with each
/// retry.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Options {
    pub table: String,
    /// Nodes that are created if they do not exist.
    pub first_nodes: FirstNodes,
    /// Callers that may do everything everywhere.
    pub superusers: AccessList,
    pub limits: Limits,
    /// The minimum age of an empty node before it is removed.
    pub grace: Duration,
    pub cache: CacheOptions,
    pub clock: Clock,
    /// The interval at which watchers look for changes made by other processes.
    pub watch_interval: Duration,
    /// How long an operation waits for removals on its path.
    pub clearing_wait: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            table: TABLE.into(),
            first_nodes: FirstNodes::default(),
            superusers: AccessList::default(),
            limits: Limits::default(),
            grace: Duration::from_secs(60),
            cache: CacheOptions::default(),
            clock: Clock::system(),
            watch_interval: Duration::from_millis(800),
            clearing_wait: Duration::from_secs(1),
        }
    }
}

/// The caller of an operation and its deadline.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Caller,
    pub deadline: Instant,
}

impl Call {
    pub fn by(caller: Caller) -> Call {
        Call { caller, deadline: Instant::now() + RETRY_TIME_MAX }
    }

    pub fn within(mut self, time: Duration) -> Call {
        self.deadline = Instant::now() + time;
        self
    }

    fn check(&self, name: impl std::fmt::Display) -> Result<()> {
        if Instant::now() >= self.deadline {
            return Err(Error::Aborted { name: name.to_string() });
        }
        Ok(())
    }
}

/// A node as returned to callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The rest of the name for the servers, or the name that was found.
    pub name: String,
    pub servers: Vec<Server>,
    pub flags: Flags,
}

impl Entry {
    /// Returns a node with its live servers.
    fn of(node: &Node, name: impl Into<String>, now_micros: i64) -> Entry {
        Entry {
            name: name.into(),
            servers: node.live(now_micros).cloned().collect(),
            flags: node.flags(now_micros),
        }
    }

    /// Returns each server's address joined with the name.
    pub fn names(&self) -> Vec<String> {
        let join = |server: &Server| crate::name::join_address(&server.address, &self.name);
        self.servers.iter().map(join).collect()
    }
}

/// A naming server on a nodes table and its counters. Any number of servers may share
/// the tables.
pub struct Mounttable {
    client: Client,
    rows: NodeRows,
    options: Options,
    /// Set when the tables and the first nodes exist.
    ready: OnceCell<()>,
    clearing: Clearing,
    /// This server, for tasks that outlive the operation that starts them.
    this: Weak<Mounttable>,
}

impl Mounttable {
    pub fn new(client: &Client, options: Options) -> Result<Arc<Mounttable>> {
        let rows = NodeRows::new(client, &options.table, options.clock.clone(), options.cache)?;
        Ok(Arc::new_cyclic(|this| Mounttable {
            client: client.clone(),
            rows,
            options,
            ready: OnceCell::new(),
            clearing: Clearing::default(),
            this: this.clone(),
        }))
    }

    /// Creates missing tables and first nodes, once. A server that is never used does
    /// not create them.
    pub async fn ready(&self) -> Result<()> {
        let set_up = || async {
            create_tables(&self.client, &self.options.table).await?;
            self.set_up(&self.options.first_nodes).await
        };
        self.ready.get_or_try_init(set_up).await.copied()
    }

    /// Returns true if the tables exist.
    pub async fn has_tables(&self) -> Result<bool> {
        Ok(self.client.list_tables().await?.contains(&self.options.table))
    }

    /// Whether there are names to ask for. Creates no tables, so that a
    /// question from anywhere on the network leaves nothing behind.
    pub async fn is_in_use(&self) -> Result<bool> {
        if !self.ready.initialized() && !self.has_tables().await? {
            return Ok(false);
        }
        self.ready().await.map(|()| true)
    }

    pub fn rows(&self) -> &NodeRows {
        &self.rows
    }

    pub(crate) fn now(&self) -> i64 {
        self.rows.clock.now()
    }
}

/// The attempts of one operation, which is retried as long as it conflicts with others.
struct Attempts<'a> {
    call: &'a Call,
    name: &'a str,
    longest: Duration,
}

impl<'a> Attempts<'a> {
    fn new(call: &'a Call, name: &'a str) -> Attempts<'a> {
        Attempts { call, name, longest: PAUSE_FIRST }
    }

    /// Returns the result of the operation, or `None` after a pause if it is to be
    /// retried.
    async fn settle<T>(&mut self, tried: Result<T>) -> Option<Result<T>> {
        match tried {
            Err(error) if error.is_conflict() => {}
            done => return Some(done),
        }
        let pause = Instant::now() + backoff::jitter(self.longest);
        tokio::time::sleep_until(pause.min(self.call.deadline)).await;
        self.longest = (self.longest * 2).min(PAUSE_LAST);
        self.call.check(self.name).err().map(Err)
    }
}
