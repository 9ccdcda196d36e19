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
//! `lock` is the stored form of a key's lock, and `hash` is a checksum of all
//! keys.

pub(crate) mod changes;
mod counts;
mod hash;
mod lock;
mod point;
mod range;
mod retained;
mod selection;
mod shared;
pub(crate) mod tables;
mod watermarks;

pub use crate::key::{KeyView, Tail};
pub use changes::{Change, ChangeKind, ChangeScan, ChangedVersions};
pub use counts::{Counts, Staged};
pub use hash::Hash;
pub use lock::{Holder, KeyLockInfo, Waiter};
pub(crate) use point::value_spec;
pub(crate) use range::is_expired;
pub use range::{RangeScan, RangeSummary};
pub use retained::{Floor, ReadOutcome};
pub(crate) use selection::Selection;
pub use shared::{MemberState, Recovered};
pub use tables::{Identity, LOCK, Tables, VALUE};
pub use watermarks::{Sample, Watermarks};
