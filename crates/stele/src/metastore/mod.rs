//! `stele metastore`: keys, transactions, watches, sessions, locks, snapshots, backups,
//! quotas, users, members and elections from the command line, over the metastore's native API and
//! etcd's. `commands` has the flags and runs what has no file of its own; `render` prints
//! results; `status` and `members` show and lead the cluster.

mod backup;
pub mod buckets;
mod commands;
mod elect;
mod history;
mod lease;
mod lock;
mod member;
mod members;
mod quota;
mod recover;
mod render;
mod snapshot;
mod status;
mod txn;
mod users;

pub use commands::{Command, run};
