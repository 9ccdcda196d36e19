//! Leases and their deadlines.
//!
//! Grants and revocations of leases are in the log. The leader keeps the
//! deadlines, in memory: a timing `wheel` finds the leases that may have expired,
//! and those that have are proposed for revocation. In a group of one, a renewal
//! writes nothing, and a restart gives every lease its full TTL again. In a group
//! of several, `deadlines` are recorded by the group `clock`, for the next leader.
//! A lease may live longer than requested, never shorter.

mod clock;
mod deadlines;
mod leases;
mod question;
mod wheel;

pub use deadlines::{Deadlines, RECORDED_EVERY, Renewal};
pub use leases::{LeaseStatus, Leases, TTL_SECONDS_MAX};
pub use question::Question;
