//! The kinds of engine errors, each with its canonical status code. A service
//! maps the code to a status of its protocol; the engine knows no protocol.

use crate::error::Error;

/// What an [`Error`] means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Something changed concurrently: read again and retry.
    Conflict,
    /// The input can never be accepted.
    InvalidInput,
    NotFound,
    AlreadyExists,
    /// Stored data is damaged, or has a format that this version cannot read.
    DataLoss,
    /// The store is not of the kind, or not in the state, that the call needs.
    Precondition,
    /// Memory or disk space is exhausted.
    Exhausted,
    /// The store or a snapshot cannot be used now.
    Unavailable,
}

impl ErrorKind {
    /// Returns the number of the canonical status code (`google.rpc.Code`).
    pub fn canonical_code(self) -> i32 {
        match self {
            ErrorKind::InvalidInput => 3,
            ErrorKind::NotFound => 5,
            ErrorKind::AlreadyExists => 6,
            ErrorKind::Exhausted => 8,
            ErrorKind::Precondition => 9,
            ErrorKind::Conflict => 10,
            ErrorKind::Unavailable => 14,
            ErrorKind::DataLoss => 15,
        }
    }
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::MutationConflict { .. }
            | Error::ScanConflict { .. }
            | Error::SchemaChanged { .. }
            | Error::EditRefused { .. }
            | Error::ConfigConflict { .. } => ErrorKind::Conflict,
            Error::TabletNotLoaded(tablet) if tablet.state.is_loading() => ErrorKind::Unavailable,
            Error::CellDisorder(_)
            | Error::InvalidPackedFormat { .. }
            | Error::InvalidMutation(_)
            | Error::TooLarge { .. }
            | Error::InvalidSplit(_)
            | Error::InvalidBackup(_)
            | Error::InvalidScan(_)
            | Error::InvalidSchema(_) => ErrorKind::InvalidInput,
            Error::UnknownTable(_)
            | Error::UnknownColumnFamily { .. }
            | Error::UnknownBackup(_)
            | Error::UnknownDeletedTable(_)
            | Error::UnknownCheckpoint(_) => ErrorKind::NotFound,
            Error::TableExists(_) | Error::BackupExists(_) => ErrorKind::AlreadyExists,
            Error::DataLoss { .. } | Error::NewerFormat { .. } => ErrorKind::DataLoss,
            Error::UnknownFold(_)
            | Error::TabletNotLoaded(_)
            | Error::OtherLog { .. }
            | Error::LocalFragments { .. }
            | Error::HasOwnLog
            | Error::HasExternalLog
            | Error::InCluster(_)
            | Error::NotInCluster
            | Error::NoObjectStore
            | Error::IndexPassed { .. } => ErrorKind::Precondition,
            Error::DiskFull { .. } | Error::Overloaded { .. } => ErrorKind::Exhausted,
            Error::SnapshotExpired { .. }
            | Error::Stopped(_)
            | Error::Closed
            | Error::Fenced { .. }
            | Error::Locked { .. }
            | Error::DirectoryInUse { .. }
            | Error::NotLocal(_)
            | Error::Io { .. } => ErrorKind::Unavailable,
        }
    }
}
