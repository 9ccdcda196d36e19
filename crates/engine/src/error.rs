//! The errors of the engine.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::tablet::TabletState;
use crate::txn::Txn;
use crate::world::Miss;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An engine error. Cheap to clone, because a failed sync is reported to every
/// waiter.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A row of the commit was written after the caller read it.
    #[error("row {row} of table {table} was changed at txn {newest}, after {commit_max_txn}")]
    MutationConflict { table: String, row: Printable, newest: Txn, commit_max_txn: Txn },
    /// The rows of a commit, or the cells of a run, are not in ascending order.
    #[error("cells out of order: {0}")]
    CellDisorder(String),
    /// The bytes of a packed commit do not parse.
    #[error("malformed commit at byte {at}: {what}")]
    InvalidPackedFormat { at: usize, what: String },
    /// The commit is well-formed but contains something that cannot be stored.
    #[error("invalid mutation: {0}")]
    InvalidMutation(String),
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// Operands were written by a newer version that knows more folds.
    #[error("unknown fold {0}: read the table with the version of stele that wrote it")]
    UnknownFold(u8),
    #[error("table {0} not found")]
    UnknownTable(String),
    #[error("table {0} already exists")]
    TableExists(String),
    #[error("table {table} has no column family {family}")]
    UnknownColumnFamily { table: String, family: Printable },
    /// The table was altered after the caller checked the commit. Nothing was
    /// changed.
    #[error("table {table} was altered: check the commit again")]
    SchemaChanged { table: String },
    #[error("checkpoint {0} not found")]
    UnknownCheckpoint(u64),
    #[error("backup {0} not found")]
    UnknownBackup(String),
    #[error("backup {0} already exists: choose another name or delete it")]
    BackupExists(String),
    #[error("invalid backup: {0}")]
    InvalidBackup(String),
    #[error("no deleted table {0} is kept: it was never deleted or its time has passed")]
    UnknownDeletedTable(String),
    #[error("invalid schema: {0}")]
    InvalidSchema(String),
    /// A table cannot be split or joined at a row.
    #[error("invalid split: {0}")]
    InvalidSplit(String),
    /// An edit of the config does not match the tablets of the table. Nothing was
    /// changed.
    #[error("table number {table} cannot be edited: {what}")]
    EditRefused { table: u32, what: &'static str },
    /// A row is in a tablet that is not loaded. Nothing was changed.
    #[error("{0}")]
    TabletNotLoaded(Box<NotLoaded>),
    /// The columns of a read cannot be read together.
    #[error("invalid scan: {0}")]
    InvalidScan(String),
    /// The row changed between two batches of a scan in mode `Unchanged`.
    #[error("row {row} changed while it was being scanned")]
    ScanConflict { row: Printable },
    /// The snapshot is too old.
    #[error("snapshot {snapshot} has expired: start the scan again")]
    SnapshotExpired { snapshot: Txn },
    /// Stored bytes are damaged; their contents are not served.
    #[error("data loss: {}, byte {offset}: {what}", path.display())]
    DataLoss { path: PathBuf, offset: u64, what: String },
    /// A file was written by a newer version of the engine.
    #[error(
        "{} has format version {found}, this program reads up to {known}: use a newer stele",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    /// A new store cannot be created where one exists.
    #[error("{} already holds a store: choose an empty directory", path.display())]
    DirectoryInUse { path: PathBuf },
    /// The store was created with its own log, or with an external one.
    #[error("the store in {} was created with {}", path.display(), if *external { "an external log: open it through its owner" } else { "its own log: choose another directory" })]
    OtherLog { path: PathBuf, external: bool },
    /// The store has its own log and assigns its own numbers.
    #[error("the store has its own log: commit without an index")]
    HasOwnLog,
    /// The store has no log of its own: commits must come with an index.
    #[error("the store has no log of its own: commit with an index in the external log")]
    HasExternalLog,
    /// The store is part of a cluster, whose tables and tablets it does not change alone.
    #[error("a server of a cluster does not {0} by itself: use the cluster's commands")]
    InCluster(&'static str),
    /// Only servers of a cluster do this.
    #[error("the store is not part of a cluster")]
    NotInCluster,
    /// The servers of a cluster share the files of their tablets.
    #[error("a server of a cluster needs an object store: name one")]
    NoObjectStore,
    /// Indices of the external log must increase.
    #[error("index {index} is not above {applied}, which is already applied")]
    IndexPassed { index: u64, applied: u64 },
    /// Another process has the directory open.
    #[error("{} is in use by another process", path.display())]
    Locked { path: PathBuf },
    /// A log write or sync failed. Nothing is acknowledged until the store is
    /// reopened.
    #[error("the store has stopped after a failure: {0}")]
    Stopped(Arc<Error>),
    #[error("the store is closed")]
    Closed,
    /// Another server has taken over the tablets of this one.
    #[error("epoch {epoch} has ended: {what}: start again with a new epoch")]
    Fenced { epoch: u64, what: String },
    /// The store cannot accept the commit now. Nothing was changed.
    #[error("overloaded: {what}: try again in {} s", retry_after.as_secs().max(1))]
    Overloaded { what: &'static str, retry_after: Duration },
    /// The config was changed concurrently.
    #[error("configuration is at revision {found}, not {expected}")]
    ConfigConflict { expected: u64, found: u64 },
    /// The disk is full. Nothing was changed; the same call succeeds once there
    /// is space.
    #[error(
        "the disk is full: {doing} {}: free some space; writes then resume by themselves",
        path.display()
    )]
    DiskFull { doing: &'static str, path: PathBuf },
    /// The files of a store are in its directory, although it is opened with a store
    /// outside.
    #[error(
        "the files of the tables are in {}, not in {address}: start without the object store, or with an empty data directory and restore into it",
        path.display()
    )]
    LocalFragments { path: PathBuf, address: String },
    /// Bytes of a file are not on this machine. Nothing was changed; the same read goes on
    /// once they were fetched.
    #[error("{0}")]
    NotLocal(Miss),
    #[error("{doing} {}: {error}", path.display())]
    Io { doing: &'static str, path: PathBuf, error: Arc<io::Error> },
}

impl Error {
    pub fn io(doing: &'static str, path: &Path, error: io::Error) -> Error {
        if let Some(miss) = Miss::of(&error) {
            return Error::NotLocal(miss.clone());
        }
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { doing, path }
            }
            _ => Error::Io { doing, path, error: Arc::new(error) },
        }
    }

    pub fn data_loss(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::DataLoss { path: path.to_path_buf(), offset, what: what.into() }
    }

    /// Whether retrying the same call can succeed.
    pub fn is_retryable(&self) -> bool {
        if let Error::TabletNotLoaded(tablet) = self {
            return tablet.state.is_loading();
        }
        matches!(
            self,
            Error::MutationConflict { .. }
                | Error::ScanConflict { .. }
                | Error::SchemaChanged { .. }
                | Error::SnapshotExpired { .. }
                | Error::Overloaded { .. }
                | Error::NotLocal(_)
        )
    }
}

/// A row that cannot be read or written, because its tablet is not loaded.
#[derive(Clone, Debug)]
pub struct NotLoaded {
    pub id: TableId,
    /// The name of the table.
    pub table: String,
    pub row: Printable,
    /// The rows of the tablet.
    pub bounds: RowRange,
    /// The number of times that the tablet was loaded or its rows changed.
    pub load: u64,
    pub state: TabletState,
}

/// Delay suggested to callers whose tablet is being loaded.
const LOADED_AFTER: Duration = Duration::from_secs(1);

impl NotLoaded {
    /// Returns when to try again, if the tablet is being loaded.
    pub fn retry_after(&self) -> Option<Duration> {
        self.state.is_loading().then_some(LOADED_AFTER)
    }
}

impl fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotLoaded { table, row, bounds, state, .. } = self;
        write!(f, "row {row} of table {table} is not served: its tablet, from row ")?;
        write!(f, "{} ", Printable::from(&bounds.start[..]))?;
        match &bounds.end {
            Some(end) => write!(f, "to before {}, ", Printable::from(&end[..]))?,
            None => f.write_str("to the end, ")?,
        }
        match state.is_loading() {
            true => write!(f, "is being loaded: try again in {} s", LOADED_AFTER.as_secs()),
            false => write!(f, "was unloaded by an operator: load it to serve its rows again"),
        }
    }
}

/// Bytes formatted for people: printable ASCII as is, the rest as `\xNN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Printable(pub Vec<u8>);

impl From<&[u8]> for Printable {
    fn from(bytes: &[u8]) -> Self {
        Printable(bytes.to_vec())
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES_MAX: usize = 120;
        write!(f, "\"{}\"", self.0[..self.0.len().min(SHOWN_BYTES_MAX)].escape_ascii())?;
        if self.0.len() > SHOWN_BYTES_MAX {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
