//! What the console needs to know of the server that it belongs to.

use serde::Serialize;
use serde_json::Value;

use crate::history::Sample;

/// The server behind a console.
pub trait Host: Send + Sync + 'static {
    /// Returns how the server was started: version, addresses, directory.
    fn facts(&self) -> Facts;
    /// Returns the present counters. Called once a second.
    fn sample(&self) -> Sample;
    /// Returns what an operator should look at, the most urgent first.
    fn attention(&self) -> Vec<Attention>;
    /// Returns the present size of memory, disk and files, as a JSON object.
    fn gauges(&self) -> Value;
    /// Returns all methods that were called.
    fn methods(&self) -> Vec<MethodCounts>;
    /// Returns all tables of the server, including those of its services.
    fn tables(&self) -> Vec<TableSummary>;
    /// Returns the tablets of a table in row order; `None` if there is no such table.
    fn tablets(&self, table: &str) -> Option<Vec<Tablet>>;
}

/// How a server was started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    pub version: &'static str,
    pub pid: u32,
    pub uptime_seconds: u64,
    pub grpc: Option<String>,
    pub http: Option<String>,
    pub dns: Option<String>,
    pub metastore: Option<String>,
    pub data: String,
    /// The object store with the files of tables, if there is one.
    pub store: Option<String>,
    pub ephemeral: bool,
    pub tls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work.
    Failure,
    /// Something will stop to work, or works slowly.
    Warning,
    /// Worth knowing.
    Note,
}

/// A sentence about something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attention {
    pub level: Level,
    pub text: String,
    /// The page with details, if there is one.
    pub link: Option<&'static str>,
}

/// The counters of one method since the start of the server.
#[derive(Clone, Debug, Serialize)]
pub struct MethodCounts {
    pub path: String,
    pub calls: u64,
    pub failed: u64,
    pub mean_micros: u64,
    pub p50_micros: u64,
    pub p99_micros: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableSummary {
    pub name: String,
    pub tablets: usize,
    pub disk_bytes: u64,
    pub largest_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Tablet {
    pub id: String,
    pub state: String,
    pub load: u64,
    pub start: Vec<u8>,
    /// `None` means the end of the table.
    pub end: Option<Vec<u8>>,
    pub disk_bytes: u64,
    pub groups: Vec<Group>,
}

/// The files of a locality group of one tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub name: String,
    pub runs: usize,
    pub files: usize,
    pub disk_bytes: u64,
    pub damaged: usize,
}
