//! Names: a hierarchical naming service that stores its state in Bigtable rows.
//!
//! Names form a tree of nodes; servers are mounted on nodes until their deadlines. From
//! the bottom: `name` and `node_name` define the syntax of names, `address` that of
//! servers, `pattern` that of searches; `blessing` and `access` implement access
//! control. A `node` is one row; `rows` reads and changes rows without lost updates,
//! through any Bigtable client. `tree` implements the operations, `server` and `dns`
//! serve them, `identity` authenticates callers, and `client` is the client library.
//! `fsck` checks and repairs what crashed processes have left. docs/names.md describes
//! the rows byte by byte and the differences from the predecessor.
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
    Call, Change, Entry, FOREVER_MICROS, FirstNodes, Found, KnownNode, Mount, Mounttable, Options,
    TABLE, WatchEvent, create_tables,
};
