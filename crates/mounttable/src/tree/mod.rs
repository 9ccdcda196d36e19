//! The tree of names: what a server of names does for its callers.
//!
//! An operation walks down the name (`walk`), checks what the caller may do,
//! changes one node and starts again if somebody else was faster. On the way
//! it clears away what has expired (`collect`), as far as rows can be written
//! (`clearing`); `sweep` does so for nodes that nobody visits. Operations are `mounting`, `removing`, `guarding`, `resolve`,
//! `glob` and `watch`; `setup` makes the tables and the first nodes.

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

use stele_bigtable::client::Client;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use self::clearing::Clearing;
pub use self::glob::Found;
pub use self::mounting::{FOREVER_MICROS, Mount};
pub use self::setup::{FirstNodes, destroy, make_tables};
pub use self::watch::{Change, Known, Seen};
use crate::access::AccessList;
use crate::blessing::Caller;
use crate::clock::{self, Clock};
use crate::error::{Error, Result};
use crate::node::{Flags, Node, Server};
use crate::rows::{CacheOptions, Limits, NodeRows};

/// The default name of the nodes table.
pub const TABLE: &str = "mounttable";

/// How long an operation may go on beginning again if its caller sets no
/// deadline.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pauses before an operation begins again: the first, and the
/// last after doubling.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Options {
    pub table: String,
    /// What is made if it is not there.
    pub first_nodes: FirstNodes,
    /// Who may do everything everywhere.
    pub superusers: AccessList,
    pub limits: Limits,
    /// How old an empty node must be to be cleared away.
    pub grace: Duration,
    pub cache: CacheOptions,
    pub clock: Clock,
    /// How often watchers look for changes that others have made.
    pub watch_interval: Duration,
    /// How long an operation waits for what it clears away on its path.
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

/// Who asks, and until when an answer is of use.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Caller,
    pub deadline: Instant,
}

impl Call {
    pub fn by(caller: Caller) -> Call {
        Call { caller, deadline: Instant::now() + PATIENCE }
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

/// A node that was found, as callers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What is left of the name at the servers, or the name that was found.
    pub name: String,
    pub servers: Vec<Server>,
    pub flags: Flags,
}

impl Entry {
    /// A node with the servers that are alive.
    fn of(node: &Node, name: impl Into<String>, now_micros: i64) -> Entry {
        Entry {
            name: name.into(),
            servers: node.live(now_micros).cloned().collect(),
            flags: node.flags(now_micros),
        }
    }

    /// Each server's address joined with the name.
    pub fn names(&self) -> Vec<String> {
        let join = |server: &Server| crate::name::join_address(&server.address, &self.name);
        self.servers.iter().map(join).collect()
    }
}

/// A server of names on a nodes table and its counters. Any number of them may
/// share the tables.
pub struct Mounttable {
    client: Client,
    rows: NodeRows,
    options: Options,
    /// Filled when the tables and the first nodes are there.
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

    /// Makes what is missing of the tables and the first nodes, once. A server
    /// whose names nobody uses never does.
    pub async fn ready(&self) -> Result<()> {
        let set_up = || async {
            make_tables(&self.client, &self.options.table).await?;
            self.set_up(&self.options.first_nodes).await
        };
        self.ready.get_or_try_init(set_up).await.copied()
    }

    /// True if there are names from an earlier time.
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

/// The attempts of one operation, which begins again from its beginning for as
/// long as others are in its way.
struct Attempts<'a> {
    call: &'a Call,
    name: &'a str,
    longest: Duration,
}

impl<'a> Attempts<'a> {
    fn new(call: &'a Call, name: &'a str) -> Attempts<'a> {
        Attempts { call, name, longest: PAUSE_FIRST }
    }

    /// How the operation ended; `None`, after a pause, if it is to be tried
    /// once more.
    async fn settle<T>(&mut self, tried: Result<T>) -> Option<Result<T>> {
        match tried {
            Err(error) if error.is_conflict() => {}
            done => return Some(done),
        }
        let pause = Instant::now() + clock::jitter(self.longest);
        tokio::time::sleep_until(pause.min(self.call.deadline)).await;
        self.longest = (self.longest * 2).min(PAUSE_LAST);
        self.call.check(self.name).err().map(Err)
    }
}
