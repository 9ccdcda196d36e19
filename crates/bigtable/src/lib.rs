//! The Bigtable API: serves tables of the engine to Google's clients.
//!
//! The path of a call: a request arrives at [`data`] or [`admin`], which its wire
//! form must pass first (`precheck`); its resource name is parsed ([`name`]) and its
//! table looked up ([`table`]), possibly through an authorized view ([`authorized`]).
//! What was created besides tables ([`instance`]s, views, operations) is kept in `records`. A write is validated as a whole and becomes one
//! engine commit. A read becomes an engine scan, narrowed to what the filter
//! ([`filter`]) can pass; its cells are encoded into the chunks of the
//! response as they are read. Failures are an [`Error`], and each error has exactly
//! one gRPC status. [`Api`] joins the services over the tables of a server; the
//! project of [`reserved`] can only be accessed within the process.
//!
//! An API that is called within the process:
//!
//! ```
//! use stele_bigtable::Api;
//! use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
//! use stele_bigtable::proto::v2::read_modify_write_rule::Rule;
//! use stele_bigtable::proto::v2::{ReadModifyWriteRowRequest, ReadModifyWriteRule};
//! use stele_bigtable::table::{Definition, Family};
//! use stele_engine::Options;
//! use stele_engine::world::World;
//! use stele_tables::Tables;
//!
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let dir = tempfile::tempdir()?;
//! let api = Api::new(Tables::open(dir.path(), Options::default(), World::real())?)?;
//! let name = "projects/p/instances/i/tables/visits";
//! let families = [("f".to_string(), Family::default())].into();
//! api.tables().create(name, Definition { families, ..Definition::default() })?;
//!
//! let increment = ReadModifyWriteRule {
//!     family_name: "f".into(),
//!     column_qualifier: "count".into(),
//!     rule: Some(Rule::IncrementAmount(1)),
//! };
//! let request = ReadModifyWriteRowRequest {
//!     table_name: name.into(),
//!     row_key: "example.com".into(),
//!     rules: vec![increment.clone(), increment],
//!     ..Default::default()
//! };
//! let mut client = BigtableClient::new(api.routes());
//! let row = client.read_modify_write_row(request).await?.into_inner().row.unwrap();
//! assert_eq!(row.families[0].columns[0].cells[0].value[..], 2i64.to_be_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod admin;
mod api;
pub mod authorized;
pub mod data;
mod error;
pub mod filter;
pub mod instance;
pub mod name;
mod precheck;
pub mod proto;
mod records;
pub mod reserved;
pub mod table;

pub use api::{Api, MESSAGE_BYTES_MAX};
pub use error::{Error, Result};
/// The patterns of row filters.
pub use stele_re2 as regex;
