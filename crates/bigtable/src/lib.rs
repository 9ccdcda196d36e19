//! The Bigtable API: tables of the engine, spoken to by Google's clients.
//!
//! Follow one call: a request arrives at `data` or `admin`, its resource name
//! is parsed (`name`) and its table found (`table`). A write is checked whole
//! and becomes one engine commit; a read becomes an engine scan that is asked
//! for no more than the filter (`filter`, `regex`) can let through, and its
//! cells are written as they come into the chunks of the response.
//! What goes wrong is an `Error`, and each error has one gRPC status.
#![forbid(unsafe_code)]

pub mod admin;
mod api;
pub mod client;
pub mod data;
mod error;
pub mod filter;
pub mod name;
mod precheck;
pub mod proto;
pub mod regex;
pub mod reserved;
pub mod table;

pub use api::{Api, MESSAGE_BYTES_MAX};
pub use error::{Error, Result};
