//! A part of a snapshot to be restored into a new store. Proposed only by the
//! offline tool, not by any service.

use crate::key::Kv;

/// Keys of the snapshot and their leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The newest revision of the restored store, above those of all keys. The
    /// same in all parts.
    pub revision: i64,
    /// Ids and granted seconds. A lease comes before the keys attached to it.
    pub leases: Vec<(i64, i64)>,
    pub kvs: Vec<Kv>,
}
