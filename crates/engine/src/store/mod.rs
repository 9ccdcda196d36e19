//! A store: tables that share one log, in one directory.
//!
//! [`Store`] is the handle; [`Engine`] is the state behind it, shared with scans
//! and workers. `open` locks the directory, takes a new epoch, replays the log
//! (`recovery`) and starts the workers. A commit passes `admission`, which
//! reserves memory and log space, and `apply`, which gives it a txn and puts it
//! into memory and the log queue in one step; `group_commit` then waits for its
//! sync on behalf of asynchronous callers. `log_mode` is the log: the store's
//! own, or an `external` one that the caller keeps and replays. `pool` runs the
//! background work of `flushing` and `compaction`.

mod admission;
mod apply;
mod checkpoint;
mod compaction;
mod engine;
mod external;
mod flushing;
mod group_commit;
mod handle;
mod log_mode;
mod open;
mod pool;
mod reads;
mod recovery;
mod stats;
mod tables;
#[cfg(test)]
mod test_store;
mod waiters;
mod waiting;

pub use crate::workers::claims::Work;
pub use crate::workers::failures::WorkFailure;
pub use admission::{Admission, Permit};
pub use engine::Engine;
pub use handle::Store;
pub use open::LOG_DIR;
pub(crate) use open::{LOCK_FILE, lock_dir};
pub use recovery::TABLES_STREAM;
pub(crate) use recovery::head_missing;
pub use stats::StoreStats;
