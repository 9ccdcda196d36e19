//! Maps each engine error to its gRPC code.

use stele_engine::Error as E;
use tonic::Code;

pub fn engine_code(error: &E) -> Code {
    match error {
        E::MutationConflict { .. }
        | E::ScanConflict { .. }
        | E::SchemaChanged { .. }
        | E::ConfigConflict { .. } => Code::Aborted,
        E::CellDisorder(_)
        | E::InvalidPackedFormat { .. }
        | E::InvalidMutation(_)
        | E::TooLarge { .. }
        | E::InvalidSchema(_) => Code::InvalidArgument,
        E::UnknownTable(_) | E::UnknownColumnFamily { .. } | E::UnknownCheckpoint(_) => {
            Code::NotFound
        }
        E::TableExists(_) => Code::AlreadyExists,
        E::DataLoss { .. } | E::NewerFormat { .. } => Code::DataLoss,
        E::UnknownFold(_) => Code::FailedPrecondition,
        // Only from stores whose log is kept by their owner.
        E::OtherLog { .. } | E::LogKept | E::NoLogKept | E::IndexPassed { .. } => {
            Code::FailedPrecondition
        }
        E::DiskFull { .. } | E::Overloaded { .. } => Code::ResourceExhausted,
        E::SnapshotExpired { .. }
        | E::Stopped(_)
        | E::Closed
        | E::Locked { .. }
        | E::DirectoryInUse { .. }
        | E::Io { .. } => Code::Unavailable,
    }
}
