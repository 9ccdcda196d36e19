//! Fragments on object stores: the only crate that names object_store.
//!
//! [`open`] connects to a store by its URL, checks that the store keeps its promises
//! (`probe`), and that its files belong to this cluster. The result is the
//! engine's [`FragmentStore`](stele_engine::world::FragmentStore): requests run on
//! threads of their own, no caller waits for the network, and bytes that were fetched or
//! written are kept in a cache on the local disk.
//!
//! | module | holds |
//! |---|---|
//! | [`address`] | URLs of stores |
//! | `bucket` | requests to a store: conditions, retries, deadlines |
//! | `transport` | HTTP and TLS under object_store |
//! | `key` | names of files in a store |
//! | `probe`, `cluster` | what is checked before a store is used |
//! | `objects` | the fragment store: reads, fetches, deletes, listings |
//! | `log_objects` | the log store: objects of the logs of servers that share the store |
//! | [`Folder`] | files that are written once, for backups |
//! | `flights` | fetches under way, shared by their readers |
//! | `sink` | uploads of new files |
//! | `reply` | callbacks that are called in any case |
//! | `cache` | the cache on the local disk |
//! | [`counters`] | metrics |
#![forbid(unsafe_code)]

pub mod address;
mod bucket;
mod cache;
mod cluster;
pub mod counters;
mod error;
mod flights;
mod folder;
mod key;
mod log_objects;
mod objects;
mod probe;
mod reply;
mod settings;
mod sink;
mod transport;

pub use address::Address;
pub use cluster::new_cluster;
pub use counters::Counters;
pub use error::{Error, Result};
pub use folder::{Folder, NewFile};
pub use log_objects::LogObjects;
pub use objects::{Objects, open};
pub use settings::{Environment, Settings};
