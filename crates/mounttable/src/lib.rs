//! Names: a hierarchical naming service that stores its state in Bigtable rows.
//!
//! Names form a tree of nodes; servers are mounted on nodes until their deadlines. All
//! state is in rows, so any number of servers can share it. docs/names.md describes the
//! rows byte by byte and the differences from the predecessor. From the bottom:
//!
//! | module | what it does |
//! |---|---|
//! | [`name`], `node_name`, [`address`], [`pattern`] | the syntax of names, nodes, server addresses and searches |
//! | [`blessing`], [`access`], [`identity`] | callers, permissions, authentication |
//! | [`node`] | a node as a row |
//! | [`rows`] | reads and changes rows without lost updates, through any Bigtable client |
//! | `tree` | the operations: resolve, mount, delete, glob, watch, garbage collection |
//! | `server`, [`dns`], [`proto`] | gRPC and DNS servers |
//! | [`client`] | follows names from server to server, keeps servers mounted |
//! | [`fsck`] | checks and repairs what crashed processes have left |
//! | [`clock`] | time, which tests advance by hand |
//!
//! # Example
//!
//! A node is a row whose key starts with a hash of its name, a search matches names
//! element by element, and permissions admit callers by their blessings.
//!
//! ```
//! use stele_mounttable::NodeName;
//! use stele_mounttable::access::{Permissions, RESOLVE};
//! use stele_mounttable::blessing::Caller;
//! use stele_mounttable::pattern::Pattern;
//!
//! let node = NodeName::parse("services//web/")?;
//! assert_eq!(node.as_str(), "services/web");
//! assert!(node.row_key().ends_with("/services/web"));
//!
//! let search = Pattern::parse("services/w*")?;
//! assert!(search.matches("services") && search.tail().matches("web"));
//!
//! let permissions = Permissions::from_json(br#"{"Resolve": {"In": ["dev:ann"]}}"#)?;
//! assert!(permissions.admit(&Caller::with(["dev:ann:phone"]), &[RESOLVE]));
//! assert!(!permissions.admit(&Caller::anonymous(), &[RESOLVE]));
//! # Ok::<(), stele_mounttable::Error>(())
//! ```
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
