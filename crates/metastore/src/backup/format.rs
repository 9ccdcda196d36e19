//! The format of a backup file: magic, records, checksum.

use bytes::Bytes;
use prost::Message;

/// The first bytes of a backup file.
pub const MAGIC: &[u8; 8] = b"SteleMB1";
/// The size of the checksum at the end: SHA-256.
pub const DIGEST_BYTES: usize = 32;

/// The tags of records, in the order in which they stand in a file. The header
/// and the end stand once.
pub mod record {
    pub const HEADER: u8 = 1;
    pub const LEASE: u8 = 2;
    pub const KEY: u8 = 3;
    pub const CHANGE: u8 = 4;
    pub const END: u8 = 5;
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Header {
    #[prost(fixed64, tag = "1")]
    pub cluster_id: u64,
    #[prost(fixed64, tag = "2")]
    pub member_id: u64,
    /// The revision of the keys in a full backup; 0 in a delta.
    #[prost(int64, tag = "3")]
    pub base: i64,
    /// The changes are those after this revision, up to and including `to`.
    #[prost(int64, tag = "4")]
    pub from: i64,
    #[prost(int64, tag = "5")]
    pub to: i64,
    /// The time of revision `to`; 0 if it is not known.
    #[prost(int64, tag = "6")]
    pub to_micros: i64,
    /// When the backup was taken.
    #[prost(int64, tag = "7")]
    pub taken_micros: i64,
    /// The checksum of the file before; empty in a full backup.
    #[prost(bytes = "bytes", tag = "8")]
    pub previous: Bytes,
    /// The feature level of the metastore.
    #[prost(uint32, tag = "9")]
    pub level: u32,
}

impl Header {
    pub fn is_full(&self) -> bool {
        self.base > 0
    }

    /// Returns the name of the file.
    pub fn name(&self) -> String {
        match self.is_full() {
            true => format!("full-{:020}.backup", self.to),
            false => format!("delta-{:020}-{:020}.backup", self.from, self.to),
        }
    }
}

/// Returns whether a name is that of a backup file.
pub fn is_backup_name(name: &str) -> bool {
    (name.starts_with("full-") || name.starts_with("delta-")) && name.ends_with(".backup")
}

/// A lease that existed when the backup was taken.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Lease {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub granted_seconds: i64,
}

/// A key at the revision `base`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Key {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The stored form of the value.
    #[prost(bytes = "bytes", tag = "2")]
    pub tail: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Change {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    #[prost(uint32, tag = "2")]
    pub sub: u32,
    /// 1 put, 2 delete, 3 change of a lock.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(int64, tag = "4")]
    pub time_micros: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub key: Bytes,
    /// The stored form of the value that was put.
    #[prost(bytes = "bytes", tag = "6")]
    pub tail: Bytes,
}

pub const KIND_PUT: u32 = 1;
pub const KIND_DELETE: u32 = 2;
pub const KIND_LOCK: u32 = 3;

/// The numbers of records in the file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct End {
    #[prost(uint64, tag = "1")]
    pub leases: u64,
    #[prost(uint64, tag = "2")]
    pub keys: u64,
    #[prost(uint64, tag = "3")]
    pub changes: u64,
}
