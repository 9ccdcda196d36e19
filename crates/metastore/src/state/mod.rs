//! The stored state and its reads.
//!
//! A [`MemberState`] (`shared`) consists of the tables of one member in one engine
//! store (`tables`) and the `watermarks` that bound reads: the newest revision,
//! up to which everything can be read, and two revisions below which it cannot.
//! Reads run concurrently with `apply`: a read picks a revision, and every cell
//! is stored under its revision, so later writes are invisible to it (`retained`
//! covers the reverse, history that is dropped during a read). `point` reads
//! single keys, `range` reads ranges in batches, and `selection` has the rules of
//! a range query, which a log entry that is being applied follows too. `counts`
//! maintains the number of keys per range, `changes` is the table of changes,
//! `lock` and `lease` are the stored forms of a key's lock and of a lease, `hash` is a checksum of all
//! retained versions, `history` has the versions of one key, `buckets` are
//! checksums of the current keys that every change updates, and `quotas` are the
//! limits of prefixes with their usage.

mod buckets;
pub(crate) mod changes;
mod counts;
mod hash;
mod history;
mod lease;
mod lock;
mod point;
mod quotas;
mod range;
mod retained;
mod selection;
mod shared;
pub(crate) mod tables;
mod watermarks;

pub use crate::key::{KeyView, Tail};
pub(crate) use buckets::KeyHash;
pub use buckets::{BUCKETS, BucketHashes, Buckets};
pub use changes::{Change, ChangeKind, ChangeScan, ChangedVersions};
pub use counts::{Counts, Staged};
pub use hash::Hash;
pub use history::KeyVersion;
pub use lease::StoredLease;
pub use lock::{Holder, KeyLockInfo, Waiter};
pub(crate) use point::value_spec;
pub(crate) use quotas::Growth;
pub use quotas::{PrefixQuota, Quotas};
pub(crate) use range::is_expired;
pub use range::{RangeScan, RangeSummary};
pub use retained::{Floor, ReadOutcome};
pub(crate) use selection::Selection;
pub use shared::{MemberState, Recovered};
pub use tables::{Identity, LOCK, Tables, VALUE};
pub use watermarks::{Sample, Watermarks};
