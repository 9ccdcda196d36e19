//! A store: tables that share one log, in one directory.
//!
//! [`Store`] is the handle; [`Engine`] is the state behind it, shared with scans
//! and workers. `open` locks the directory, takes a new incarnation, replays the log
//! (`recovery`) and starts the workers. A commit passes `admission`, which
//! reserves memory and log space, and `apply`, which gives it a txn and puts it
//! into memory and the log queue in one step; `group_commit` then waits for its
//! sync on behalf of asynchronous callers. `log_mode` is the log: the store's
//! own, that of a server in a cluster (`placed`), or an `external` one that the caller keeps and replays. `pool` runs the
//! background work of `flushing`, `compaction` and `bounds`. `tables`, `tablets` and `loads` are what
//! the owner of a store changes: schemas, bounds, and which rows are served;
//! `load_wait` waits for rows that soon are. `rebuild` recovers the log of another server. `backups` keeps tables as they were, restores
//! them, and brings deleted ones back. `collection` deletes unused files outside the
//! directory.

mod admission;
mod apply;
mod backups;
mod bounds;
mod checkpoint;
mod collection;
mod compaction;
mod engine;
mod external;
mod flushing;
mod group_commit;
mod handle;
mod load_wait;
mod loads;
mod log_mode;
mod open;
mod placed;
mod pool;
mod reads;
mod rebuild;
mod recovery;
mod regroup;
mod stats;
mod tables;
mod tablets;
#[cfg(test)]
mod test_store;
mod touched;
mod waiters;
mod waiting;

pub use crate::workers::claims::Work;
pub use crate::workers::failures::WorkFailure;
pub use admission::{Admission, Permit};
pub use backups::{BackupInfo, DeletedInfo};
pub use checkpoint::CheckpointFiles;
pub use collection::{Collected, UnusedFile};
pub use engine::Engine;
pub use handle::Store;
pub use load_wait::LoadWait;
pub use open::LOG_DIR;
pub(crate) use open::{LOCK_FILE, lock_dir};
pub use placed::ServerParts;
pub use rebuild::{ClaimedTablet, PendingFiles, Rebuilding, Rebuilt};
pub use recovery::TABLES_STREAM;
pub(crate) use recovery::head_missing;
pub use stats::StoreStats;
pub use tablets::{ChainInfo, TabletInfo, TabletSummary};
