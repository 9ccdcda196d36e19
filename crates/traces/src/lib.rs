//! Traces: results per commit and parameter set, stored in Bigtable rows.
//!
//! A trace is identified by its params. When a result is stored, its commit is looked
//! up, its params are added to the tile's ordered param set and encoded as a short id,
//! its digest is mapped to a number, and a cell is written. A query is planned on the
//! tile's param set, rows are read shard by shard, and numbers are mapped back to
//! digests. docs/traces.md describes the rows byte by byte.
//!
//! | module | what it does |
//! |---|---|
//! | [`params`], [`param_set`], `ordered` | the identity of a trace, sets of keys and values, short ids |
//! | [`tile`], [`digest`], [`row_name`] | positions of commits, results, and the names of rows |
//! | [`query`] | selects traces |
//! | [`store`] | all reads and writes of rows |
//! | [`ingest`] | reads the output of test runners and benchmarks, and git history |
//! | [`analysis`] | what changed and since when: pure functions |
//! | [`questions`] | the same over a store, for HTTP and the command line |
//! | [`http`] | the HTTP API and the web page |
//! | [`memory`] | the memory that requests hold |
//!
//! # Example
//!
//! A report of a test runner becomes entries; a query selects their traces; an analysis
//! finds the commit that changed one.
//!
//! ```
//! use stele_traces::analysis::first_bad;
//! use stele_traces::ingest::{Format, Reader};
//! use stele_traces::{CommitIndex, Params, Query};
//!
//! let report = b"<testsuite name='unit'><testcase name='parses'/></testsuite>";
//! let labels = Params::new([("os", "linux")])?;
//! let reports = Reader::new(labels).read(Format::Junit, report)?;
//! let trace = &reports[0].entries[0].params;
//! assert_eq!(trace.id(), ",name=parses,os=linux,suite=unit,");
//!
//! let query: Query = "os=linux&name=~^par".parse()?;
//! assert!(query.matches(trace));
//!
//! let history = [(0, "passed"), (1, "passed"), (4, "failed"), (5, "failed")];
//! let history = history.map(|(index, result)| (CommitIndex(index), result));
//! let found = first_bad(&history, None, None).expect("the result has changed");
//! assert_eq!((found.change.good, found.change.bad), (CommitIndex(1), CommitIndex(4)));
//! # Ok::<(), stele_traces::Error>(())
//! ```
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
