//! The options of a naming server.

use std::time::Duration;

use super::setup::FirstNodes;
use crate::access::AccessList;
use crate::clock::Clock;
use crate::rows::{CacheOptions, Limits};

/// The default name of the nodes table.
pub const TABLE: &str = "mounttable";

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
