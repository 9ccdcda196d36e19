//! Stele's own API of tables over gRPC, for what the Bigtable API cannot express: atomic
//! commits of several rows and scans that resume (`proto/tables_data.proto`), and the
//! administration of tablets, locality groups and backups (`proto/tables.proto`).
//!
//! [`Native`] serves rows (`native`); [`TableClient`] is its client (`table_client`).
//!
//! [`Admin`] serves it on the [`Tables`](stele_tables::Tables) of a server: calls that
//! may block leave the runtime's threads (`cost`), long ones stream their progress
//! (`progress`), `convert` turns tablets and the config into messages, and `schema` changes groups. [`Client`] is
//! its client. Who may call it is decided by the server, before a call arrives here.
//!
//! ```
//! use stele_engine::schema::{Family, Schema};
//! use stele_engine::world::World;
//! use stele_engine::Options;
//! use stele_grpc::Services;
//! use stele_tables::Tables;
//! use stele_tables_api::{Admin, Client};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let tables = Tables::open(dir.path(), Options::default(), World::real())?;
//! tables.create("visits", Schema::with_families([Family::new("f")])?)?;
//! let services = Services::default().with(Admin::new(tables).service());
//!
//! let client = Client::in_process(services);
//! assert!(client.split("visits", b"m").await?);
//! assert!(!client.split("visits", b"m").await?, "they meet there already");
//! let tablets = client.tablets("visits").await?;
//! assert_eq!(tablets[1].start_row[..], b"m"[..]);
//! client.join("visits", b"m").await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod admin;
mod backups;
mod client;
mod codec;
mod convert;
mod error;
mod native;
mod progress;
pub mod proto;
mod schema;
mod table_client;

pub use admin::{Access, Added, Admin};
pub use client::{Client, Replies};
pub use convert::config_parts;
pub use error::{ERROR_DOMAIN, Error, Result, reason};
pub use native::{AllTables, MutationCheck, Native, ScannerLimits, ServedTable, TableRules};
pub use schema::Definitions;
pub use table_client::{
    Cell, Row, RowCommit, Rows, ScanOptions, Scanner, Table, TableClient, TableError, TableResult,
    Transaction,
};
