//! A member of the metastore, as the services see it.
//!
//! A [`Node`] (`lifecycle`) is a member's state and its part of the Raft group. A
//! write is proposed and answered once it is applied (`propose`). A read uses the
//! local state (`reader`), after a barrier if it must be linearizable. Background
//! work is done by `duties`: expiring leases, dropping history (`retention`) and
//! clearing alarms (`quota`). `purge` drops history on request, `clocks` provides
//! the timestamps of writes, and `admission` orders transactions that had a
//! conflict, oldest first. `cluster` holds what only the leader may do, `members` changes
//! the members. `level` raises the feature level, `verify` checks the stored keys against
//! their hashes, `compare` the hashes of all members, `slow` logs slow requests, and
//! `recover` makes a survivor the only voter of a new cluster.

mod admission;
mod clocks;
mod cluster;
mod compare;
mod duties;
mod level;
mod lifecycle;
mod members;
mod propose;
mod purge;
mod quota;
mod reader;
mod recover;
mod retention;
mod settings;
mod slow;
mod status;
mod usage;
mod verify;

pub use admission::Attempt;
pub use cluster::ClusterSettings;
pub use compare::{Compared, Difference};
pub use lifecycle::Node;
pub use propose::NodeAs;
pub use reader::Reader;
pub use recover::{Recovery, inspect_member, recover_member, stored_identity};
pub use retention::Retention;
pub use settings::{BackupSettings, ExecuteLimits, NodeSettings};
pub use status::{BackupCounts, History, Status, Usage};
pub use usage::{PrefixUsage, Top};
pub use verify::Verified;
