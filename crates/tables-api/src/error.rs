//! Errors, and the gRPC status of each.

use std::collections::HashMap;
use std::time::Duration;

use stele_engine as engine;
use stele_engine::Txn;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The domain of the reasons in `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "stele.tables";

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("table {0:?} not found")]
    UnknownTable(String),
    #[error("backup {0:?} not found")]
    UnknownBackup(String),
    #[error("invalid name of a {of} {name:?}: use 1 to 50 letters, digits, `_`, `-` and `.`")]
    InvalidName { of: &'static str, name: String },
    #[error(
        "{0:?} is not a table of the Bigtable API: only projects/P/instances/I/tables/T can be \
         backed up and restored"
    )]
    NotBigtable(String),
    #[error("the range of rows is empty: its start must be before its end")]
    EmptyRange,
    #[error(
        "the server has no object store: unused files of its data directory are removed at once"
    )]
    NoObjectStore,
    /// The handle is of a table of the same name that was dropped.
    #[error("table {0:?} was deleted and created again: open it again")]
    StaleHandle(String),
    #[error("invalid commit: {0}")]
    InvalidCommit(String),
    #[error("invalid scan: {0}")]
    InvalidScan(String),
    #[error("{0} is not a txn: use one that the server has returned")]
    InvalidTxn(u64),
    /// The caller named a schema that is not the current one.
    #[error("the schema of table {0:?} has changed: open it again")]
    OtherSchema(String),
    /// A commit of an earlier run of the server may have been lost in a crash.
    #[error("txn {0} is of an earlier run of the server, and may be lost: read its rows")]
    ForgottenTxn(Txn),
    #[error("scanner {0} has expired: scan again after the last complete row")]
    ScannerExpired(u64),
    #[error("scanner {0} is in use by another call: wait for that call")]
    ScannerBusy(u64),
    #[error("scanner {scanner} is at block {next}: it cannot return block {requested}")]
    ScannerSequence { scanner: u64, next: u64, requested: u64 },
    /// Not possible while one process serves all rows.
    #[error("the rows of the commit are on several servers: split it into commits of one server")]
    RowsOnSeveralServers,
    #[error(
        "the schema would drop families of table {table:?} with all their cells: {}: name them \
         in a group, add * to the columns of one, or permit it explicitly",
        .families.join(", ")
    )]
    DropsFamilies { table: String, families: Vec<String> },
    #[error("the request has no schema")]
    NoSchema,
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    /// Returns the reason as programs see it, in `google.rpc.ErrorInfo`.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::UnknownTable(_) => "UNKNOWN_TABLE",
            Error::UnknownBackup(_) => "UNKNOWN_BACKUP",
            Error::InvalidName { .. } => "INVALID_NAME",
            Error::NotBigtable(_) => "NOT_BIGTABLE",
            Error::NoObjectStore => "NO_OBJECT_STORE",
            Error::EmptyRange => "EMPTY_RANGE",
            Error::StaleHandle(_) => "STALE_HANDLE",
            Error::InvalidCommit(_) => "INVALID_COMMIT",
            Error::InvalidScan(_) => "INVALID_SCAN",
            Error::InvalidTxn(_) => "INVALID_TXN",
            Error::OtherSchema(_) => "SCHEMA_CHANGED",
            Error::ForgottenTxn(_) => "FORGOTTEN_TXN",
            Error::ScannerExpired(_) => "SCANNER_EXPIRED",
            Error::ScannerBusy(_) => "SCANNER_BUSY",
            Error::ScannerSequence { .. } => "SCANNER_SEQUENCE",
            Error::RowsOnSeveralServers => "ROWS_ON_SEVERAL_SERVERS",
            Error::DropsFamilies { .. } => "DROPS_FAMILIES",
            Error::NoSchema => "NO_SCHEMA",
            Error::Engine(error) => engine_reason(error),
        }
    }

    /// Returns the status code.
    pub fn code(&self) -> Code {
        match self {
            Error::UnknownTable(_) | Error::UnknownBackup(_) => Code::NotFound,
            Error::EmptyRange
            | Error::InvalidName { .. }
            | Error::NotBigtable(_)
            | Error::NoSchema
            | Error::InvalidCommit(_)
            | Error::InvalidScan(_)
            | Error::InvalidTxn(_)
            | Error::ScannerSequence { .. } => Code::InvalidArgument,
            Error::StaleHandle(_)
            | Error::ForgottenTxn(_)
            | Error::RowsOnSeveralServers
            | Error::DropsFamilies { .. }
            | Error::NoObjectStore => Code::FailedPrecondition,
            Error::OtherSchema(_) | Error::ScannerExpired(_) | Error::ScannerBusy(_) => {
                Code::Aborted
            }
            Error::Engine(error) => Code::from_i32(error.kind().canonical_code()),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Engine(engine::Error::Overloaded { retry_after, .. }) => Some(*retry_after),
            Error::Engine(engine::Error::TabletNotLoaded(tablet)) => tablet.retry_after(),
            _ => None,
        }
    }
}

fn engine_reason(error: &engine::Error) -> &'static str {
    match error {
        engine::Error::MutationConflict { .. } => "MUTATION_CONFLICT",
        engine::Error::ScanConflict { .. } => "SCAN_CONFLICT",
        engine::Error::SchemaChanged { .. } => "SCHEMA_CHANGED",
        engine::Error::TabletNotLoaded(_) => "TABLET_NOT_LOADED",
        engine::Error::CellDisorder(_) => "CELL_DISORDER",
        engine::Error::InvalidPackedFormat { .. } => "INVALID_PACKED_FORMAT",
        engine::Error::InvalidMutation(_) => "INVALID_MUTATION",
        engine::Error::TooLarge { .. } => "TOO_LARGE",
        engine::Error::UnknownTable(_) => "UNKNOWN_TABLE",
        engine::Error::UnknownColumnFamily { .. } => "UNKNOWN_COLUMN_FAMILY",
        engine::Error::SnapshotExpired { .. } => "SNAPSHOT_EXPIRED",
        engine::Error::Overloaded { .. } => "OVERLOADED",
        engine::Error::DiskFull { .. } => "DISK_FULL",
        engine::Error::DataLoss { .. } => "DATA_LOSS",
        engine::Error::Stopped(_) | engine::Error::Closed => "STOPPED",
        _ => "FAILED",
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(error.reason(), ERROR_DOMAIN, HashMap::new());
        if let Some(after) = error.retry_after() {
            details.set_retry_info(Some(after));
        }
        Status::with_error_details(error.code(), error.to_string(), details)
    }
}

/// Returns the reason of an error of this API; `None` for any other error.
pub fn reason(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.domain == ERROR_DOMAIN).then_some(info.reason)
}
