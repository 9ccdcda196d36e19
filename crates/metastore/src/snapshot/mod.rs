//! Snapshots: all keys and leases of one revision in a file (docs/etcd.md has
//! the bytes). The Snapshot method of the etcd API writes them; here they are
//! read and checked (`reader`), and made into a new member (`restore`).

mod reader;
mod restore;

pub use reader::{Reader, Record};
pub use restore::{Restored, restore};

/// What a snapshot begins with.
pub const MAGIC: &[u8; 8] = b"SteleMS1";
/// A snapshot without its checksum is filled up with zeros to a multiple of
/// this: by that etcdctl knows that the checksum is there.
pub const BLOCK_BYTES: usize = 512;
/// The checksum at the end: SHA-256.
pub const DIGEST_BYTES: usize = 32;

/// Records of a snapshot: a field each, as if all were one message.
pub mod record {
    pub const HEADER: u8 = 1;
    pub const KEY_VALUE: u8 = 2;
    pub const LEASE: u8 = 3;
}
