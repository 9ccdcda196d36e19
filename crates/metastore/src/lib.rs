//! The metastore: a small, strongly consistent key-value store and lock service
//! on one Raft group, in the role of Chubby, etcd or ZooKeeper.
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod consensus;
mod error;
pub mod etcd;
pub mod histogram;
pub mod lease;
pub mod machine;
pub mod native;
pub mod node;
pub mod proto;
pub mod snapshot;
pub mod state;
pub mod watch;
mod wire;

pub use error::{Code, Error, Result};
pub use node::{Node, Status, Usage};
pub use state::{Hash, RangeSummary};
