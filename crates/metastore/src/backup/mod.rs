//! Backups of a running metastore with their history (docs/metastore-backup.md
//! specifies the files).
//!
//! A full backup has all keys of one revision. A delta has the changes since the
//! file before it, which it names by checksum, so a full backup and its deltas
//! form a `chain` that can be restored at every revision in between. `create`
//! adds the next file, `schedule` does so regularly, `restore` builds a new
//! member from a chain. Files are written and read by `writer` and `reader`; a
//! `location` stores them: a directory, or what the node's settings open.

mod chain;
mod create;
mod format;
mod location;
mod reader;
mod restore;
mod schedule;
mod writer;

pub use chain::{BackupFile, Chain, Chains, list, verify};
pub use create::{Created, Kind, create};
pub use format::{Change, DIGEST_BYTES, End, Header, Key, Lease, MAGIC, is_backup_name};
pub use location::{Directory, Location, OpenLocation, ReadSeek, open_location};
pub use reader::{Reader, Record};
pub use restore::{Restored, Target, restore};
pub use schedule::Schedule;
