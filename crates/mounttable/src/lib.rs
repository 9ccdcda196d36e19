//! Names: a hierarchical naming service whose state lives in Bigtable rows.
//!
//! A name leads down a tree of nodes; servers are mounted on nodes, each until
//! its deadline. From the bottom: `name` and `node_name` say what names are,
//! `address` what servers, `pattern` what may be searched for; `blessing` and
//! `access` say who may do what. A `node` is one row; `rows` reads and changes
//! rows so that nobody's change is lost, through any Bigtable client. `tree`
//! is what callers see, `server` and `dns` how they reach it, `identity` how they
//! are known, `client` what they may do it with. `fsck` checks and mends what those who died have left.
//! docs/names.md tells the rows byte by byte and what differs from the
//! predecessor.
#![forbid(unsafe_code)]

pub mod access;
pub mod address;
pub mod blessing;
pub mod client;
pub mod clock;
pub mod dns;
mod error;
pub mod fsck;
pub mod identity;
pub mod name;
pub mod node;
mod node_name;
pub mod pattern;
pub mod proto;
pub mod rows;
mod server;
mod tree;

pub use error::{Error, KIND_HEADER, Result};
pub use node_name::{ELEMENT_BYTES_MAX, NAME_BYTES_MAX, NodeName};
pub use server::Server;
pub use tree::{
    Call, Change, Entry, FOREVER_MICROS, FirstNodes, Found, Known, Mount, Mounttable, Options,
    Seen, TABLE, destroy, make_tables,
};
