//! Leases and their deadlines.
//!
//! Grants and revocations of leases are in the log; deadlines are not. Only the
//! leader keeps deadlines, in memory, so a renewal writes neither a log entry
//! nor to disk. A timing `wheel` finds the leases that may have expired, and
//! those that have are proposed for revocation. A new leader, also after a
//! restart, gives every lease its full TTL again: a lease may live longer than
//! requested, never shorter.

mod leases;
mod question;
mod wheel;

pub use leases::{LeaseStatus, Leases, TTL_SECONDS_MAX};
pub use question::Question;
