//! Keys, ranges of keys and stored values, as all other modules see them.
//!
//! A value is stored as the [`Tail`] of etcd's KeyValue message: the message in
//! wire format without the key. A [`KeyView`] is a key with its tail, a [`Kv`]
//! an owned one, and a [`KeyRange`] the keys that a request names.

mod range;
mod tail;
mod view;

pub use range::{KeyRange, RangeEnd};
pub use tail::Tail;
pub use view::{KeyView, Kv};
