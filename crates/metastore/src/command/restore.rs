//! A part of a snapshot that is put into a new store. Only the offline tool
//! proposes it; no service does.

use super::Kv;

/// Keys as they were, with the leases that they go with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The newest revision of the restored store, above those of all keys.
    /// The same in all parts.
    pub revision: i64,
    /// Ids and granted seconds. They come before the keys that go with them.
    pub leases: Vec<(i64, i64)>,
    pub kvs: Vec<Kv>,
}
