//! The other engines, each set up to be as fast as it can be made.

pub mod fjalls;
pub mod lmdb;
pub mod redbs;
#[cfg(feature = "rocksdb")]
pub mod rocks;
