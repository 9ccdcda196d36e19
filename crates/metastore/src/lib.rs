//! The metastore: a small, strongly consistent key-value store and lock service
//! on one Raft group, in the role of Chubby, etcd or ZooKeeper.
//!
//! A [`Node`] is a member. It answers etcd's clients ([`etcd`]) and its own
//! ([`native`], with a [`client`]):
//!
//! ```
//! use stele_engine::world::World;
//! use stele_metastore::command::{Command, Put, RangeQuery};
//! use stele_metastore::key::KeyRange;
//! use stele_metastore::{Floor, Node, node};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let dir = tempfile::tempdir().unwrap();
//! let node = Node::open(node::NodeSettings::new(dir.path().into(), World::real())).await?;
//! let written = node.propose(Command::Put(Put::new("colour", "green"))).await?;
//!
//! // A read of the local state is linearizable after a barrier.
//! node.barrier().await?;
//! let mut found = Vec::new();
//! let query = RangeQuery::new(KeyRange::prefix("col"));
//! let summary = node.reader(Floor::Compacted).range(&query, &mut |view| {
//!     found.push((view.value().to_vec(), view.mod_revision()));
//! })?;
//! assert_eq!(found, [(b"green".to_vec(), written.revision)]);
//! assert_eq!(summary.count, 1);
//! node.close().await?;
//! # Ok::<_, stele_metastore::Error>(())
//! # })
//! # .unwrap();
//! ```
//!
//! # Map
//!
//! Each module uses only those below it.
//!
//! | module | contents |
//! |---|---|
//! | [`etcd`], [`native`] | the etcd v3 API (gRPC, JSON, pages); the metastore's own API |
//! | [`client`] | a client of the native API |
//! | [`backup`], [`snapshot`] | backups with their history, snapshot files, members restored from either |
//! | [`node`] | a member as the services see it; background duties |
//! | [`machine`] | log entries applied to the state |
//! | [`lease`], [`watch`] | deadlines of leases; streams of changes |
//! | [`auth`] | users, roles, permissions and tokens |
//! | [`state`] | the engine tables, and reads at a revision |
//! | [`peer`] | the network between members |
//! | [`consensus`] | the Raft group and its log |
//! | [`command`] | what can be proposed: encoding and validation |
//! | [`key`] | keys, ranges of keys and stored values |
//! | [`phases`], [`histogram`] | durations of requests, for the metrics |
#![forbid(unsafe_code)]

pub mod auth;
pub mod backup;
pub mod client;
pub mod command;
pub mod consensus;
mod error;
pub mod etcd;
pub mod histogram;
pub mod key;
pub mod lease;
pub mod machine;
pub mod native;
pub mod node;
pub mod peer;
pub mod phases;
pub mod proto;
pub mod snapshot;
pub mod state;
pub mod watch;
mod wire;

pub use error::{Code, Error, Result};
pub use node::{Node, Status, Usage};
pub use state::{Floor, Hash, RangeSummary};
