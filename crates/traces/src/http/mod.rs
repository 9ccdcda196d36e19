//! The HTTP API and the web page. `stele serve` and `stele traces serve` mount `router`
//! at /traces; web/openapi.json describes the API.
//!
//! `routes` lists the paths, `request` parses parameters and bodies, `tables` opens the
//! named table; `results` and `labels` write, `query` and `analyses` read, and `answer` encodes
//! results and errors as JSON.

mod analyses;
mod answer;
mod labels;
mod page;
mod query;
mod request;
mod results;
mod routes;
mod tables;

pub use routes::{router, router_within};
pub use tables::Tables;

/// The project of the tables that `stele serve` serves.
pub const PROJECT: &str = "stele";
pub const INSTANCE: &str = "traces";
