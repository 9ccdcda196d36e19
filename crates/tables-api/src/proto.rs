//! The messages and services of `proto/tables.proto` and `proto/tables_data.proto`.

tonic::include_proto!("stele.tables.v1");

/// Descriptors for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tables.descriptors"));

/// The name of the service, in paths and health checks.
pub const SERVICE: &str = "stele.tables.v1.TabletAdmin";

/// The name of the service of rows.
pub const DATA_SERVICE: &str = "stele.tables.v1.Tables";
