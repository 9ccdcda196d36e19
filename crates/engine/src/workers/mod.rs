//! Background work: flushing memory to disk fragments, and compacting chains of
//! fragments. Workers run on their own threads, or step by step on the thread
//! of the store's owner.

pub mod choose;
pub mod claims;
pub mod compact;
pub mod failures;
pub mod flush;
pub mod output;
pub mod signal;
