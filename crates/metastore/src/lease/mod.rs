//! Leases: who still lives.

use crate::error::Result;

/// The leases of a node, with their deadlines.
pub struct Leases {}

/// What is known of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    pub id: i64,
    /// Whole seconds until it runs out.
    pub ttl_seconds: i64,
    pub granted_seconds: i64,
}

impl Leases {
    /// Renews a lease; nothing is logged. `None`: there is no such lease, or it
    /// is running out just now. Otherwise the TTL it was granted.
    pub fn keep_alive(&self, id: i64) -> Option<i64> {
        let _ = id;
        todo!()
    }

    /// `None`: there is no such lease.
    pub fn time_to_live(&self, id: i64) -> Option<LeaseStatus> {
        let _ = id;
        todo!()
    }

    /// The keys that go with a lease.
    pub fn keys(&self, id: i64) -> Result<Vec<bytes::Bytes>> {
        let _ = id;
        todo!()
    }

    /// All leases, those that run out first first.
    pub fn list(&self) -> Vec<i64> {
        todo!()
    }
}
