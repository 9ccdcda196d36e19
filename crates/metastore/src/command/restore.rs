//! A part of a snapshot or of a backup to be restored into a new store.
//! Proposed only by the offline tool, not by any service.

use bytes::Bytes;

use crate::key::Kv;

/// Keys of the snapshot and their leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The newest revision of the restored store, not below those of all keys. The
    /// same in all parts.
    pub revision: i64,
    /// Ids and granted seconds. A lease comes before the keys attached to it.
    pub leases: Vec<(i64, i64)>,
    pub kvs: Vec<Kv>,
}

/// Changes of a backup, to be made again with the revisions and times that
/// they had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreHistory {
    /// Leases that the changes attach keys to: ids and granted seconds. Those
    /// that exist are skipped.
    pub leases: Vec<(i64, i64)>,
    /// In the order of revision and sub-revision.
    pub changes: Vec<RestoredChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredChange {
    pub revision: i64,
    /// Orders the changes of one revision.
    pub sub: u32,
    pub time_micros: i64,
    pub key: Bytes,
    pub what: RestoredVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoredVersion {
    /// The stored form of the value.
    Put(Bytes),
    Delete,
    /// A change of the key's lock. Locks are not restored; the revision is.
    Lock,
}
