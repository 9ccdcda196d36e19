//! The other engines, each configured for its best performance.

pub mod fjalls;
pub mod lmdb;
pub mod redbs;
#[cfg(feature = "rocksdb")]
pub mod rocks;
