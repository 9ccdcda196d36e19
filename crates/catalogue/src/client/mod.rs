//! A client for catalogues, over the network or within the process. It splits large
//! vectors into the messages of one request, which remains atomic, and caches the
//! cookie of each catalogue.
//!
//! `connection` holds the calls on catalogues and `handle` those on the records of one;
//! `encode` encodes their vectors, `records` and `segments` decode the replies.

mod connection;
mod encode;
mod handle;
mod records;
mod segments;

pub use connection::{Client, Result};
pub use encode::{NewRecord, RecordKey, WalkStart};
pub use handle::{Found, Handle, Walk};
pub use records::{Records, Step};
pub use segments::Segments;
pub use stele_grpc::Tls;
