//! Traces: one result per commit per parameter set, in Bigtable rows.
//!
//! A trace is named by its `params`. Follow one result in: its commit is
//! looked up, its params are learnt by the tile's `ordered` param set and
//! become a short id, its `digest` gets a number, and a cell is written to a
//! row with the name that `row_name` gives it. Follow a `query` out: it is
//! planned on the tile's set, rows are read shard by shard, and numbers become
//! digests again. All rows are written and read by `store`. What the results
//! mean (what changed, since when) is computed by `analysis`; `ingest` reads
//! what test runners and benchmarks write; `http` serves the API and the page.
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
