//! `stele metastore`: keys, transactions, watches, sessions, locks and snapshots from the
//! command line, over the metastore's native API. `commands` has the flags and runs what
//! has no file of its own; `render` prints results.

mod commands;
mod lease;
mod lock;
mod render;
mod snapshot;
mod txn;

pub use commands::{Command, run};
