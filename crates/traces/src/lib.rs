//! Traces: results per commit and parameter set, stored in Bigtable rows.
//!
//! A trace is identified by its `params`. When a result is stored, its commit is looked
//! up, its params are added to the tile's `ordered` param set and encoded as a short
//! id, its `digest` is mapped to a number, and a cell is written to the row named by
//! `row_name`. A `query` is planned on the tile's param set, rows are read shard by
//! shard, and numbers are mapped back to digests. All rows are written and read by
//! `store`. `analysis` computes what changed and since when; `ingest` reads the output
//! of test runners and benchmarks; `http` serves the API and the web page.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod digest;
mod error;
pub mod http;
pub mod ingest;
pub mod memory;
mod ordered;
pub mod param_set;
pub mod params;
pub mod query;
pub mod questions;
pub mod row_name;
pub mod store;
pub mod tile;
mod varint;

pub use digest::Digest;
pub use error::{Error, Result};
pub use param_set::ParamSet;
pub use params::Params;
pub use query::Query;
pub use row_name::Kind;
pub use store::Store;
pub use tile::{CommitIndex, Tile};
