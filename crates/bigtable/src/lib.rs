//! The Bigtable API: serves tables of the engine to Google's clients.
//!
//! The path of a call: a request arrives at `data` or `admin`, its resource name
//! is parsed (`name`) and its table looked up (`table`). A write is validated as
//! a whole and becomes one engine commit. A read becomes an engine scan, narrowed
//! to what the filter (`filter`, `regex`) can let through; its cells are encoded
//! into the chunks of the response as they are read. Failures are an `Error`, and
//! each error has exactly one gRPC status.
#![forbid(unsafe_code)]

pub mod admin;
mod api;
pub mod data;
mod error;
pub mod filter;
pub mod name;
mod precheck;
pub mod proto;
pub mod reserved;
pub mod table;

pub use api::{Api, MESSAGE_BYTES_MAX};
pub use error::{Error, Result};
/// The patterns of row filters.
pub use stele_re2 as regex;
