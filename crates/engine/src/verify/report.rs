//! The report of a check, for people and programs.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::txn::Txn;

/// A problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    pub offset: u64,
    pub what: String,
}

impl Problem {
    pub fn new(path: &Path, offset: u64, what: impl Into<String>) -> Problem {
        Problem { path: path.to_path_buf(), offset, what: what.into() }
    }

    /// Converts an error about `path`.
    pub(super) fn of(error: Error, path: &Path) -> Problem {
        match error {
            Error::DataLoss { path, offset, what } => Problem { path, offset, what },
            Error::Io { path, error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                Problem { path, offset: 0, what: "the file is missing".into() }
            }
            Error::Io { path, error, .. } => {
                Problem { path, offset: 0, what: format!("the file cannot be read: {error}") }
            }
            other => Problem { path: path.to_path_buf(), offset: 0, what: other.to_string() },
        }
    }
}

/// A file that is not part of the store. Harmless: it only takes up space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    pub path: PathBuf,
    pub bytes: u64,
    pub why: &'static str,
}

/// The location of a write that a crash interrupted. It was never acknowledged, so
/// nothing is lost with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornWrite {
    pub path: PathBuf,
    pub offset: u64,
}

/// A fragment that the config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentReport {
    pub path: PathBuf,
    pub table: String,
    pub group: String,
    pub bytes: u64,
    pub blocks: u64,
    pub rows: u64,
    pub cells: u64,
    pub tombstones: u64,
    pub range_tombstones: u64,
    pub sound: bool,
}

/// The log from its head on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    pub head_segment: u64,
    pub segments: u64,
    pub records: u64,
    /// Complete, readable commits of tables.
    pub commits: u64,
    /// Bytes of their payloads.
    pub commit_bytes: u64,
    pub txn_last: Option<Txn>,
    pub torn: Option<TornWrite>,
}

/// Everything that a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub store_id: u64,
    pub revision: u64,
    pub epoch: u64,
    /// Tables in use.
    pub tables: u64,
    pub backups: u64,
    /// Tables that were deleted and can be brought back.
    pub deleted_tables: u64,
    /// Of all of these.
    pub tablets: u64,
    pub manifest_bytes: u64,
    /// An edit of the config that a crash interrupted.
    pub manifest_torn: Option<TornWrite>,
    pub fragments: Vec<FragmentReport>,
    pub log: LogReport,
    pub garbage: Vec<Garbage>,
    pub problems: Vec<Problem>,
}

impl Report {
    /// Returns whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}
