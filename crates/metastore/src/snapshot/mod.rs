//! Snapshots: all keys and leases of one revision in a file (docs/etcd.md
//! specifies the format, `format` has its constants). `writer` reads one from a
//! node, for the Snapshot method of the etcd API; `reader` checks and reads one,
//! by its `records`, which backups share; `restore` creates a new member from one.

mod format;
mod reader;
mod records;
mod restore;
mod writer;

pub use format::{BLOCK_BYTES, DIGEST_BYTES, MAGIC, record};
pub use reader::{Reader, Record};
pub(crate) use records::Records;
pub use restore::{Restored, restore};
pub(crate) use restore::{build_dir, finish_dir};
pub use writer::Writer;
