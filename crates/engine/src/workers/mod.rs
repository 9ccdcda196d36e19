//! Background work: flushing memory to disk fragments (`flush`, `flush_files`,
//! `publication`), compacting chains of fragments (`choose`, `compact`), and
//! the choice of tablets to split and join (`bounds`).
//! Workers run on their own threads, or step by step on the thread of the store's
//! owner.

pub mod bounds;
pub mod choose;
pub mod claims;
pub mod compact;
pub mod failures;
pub mod flush;
mod flush_files;
pub mod output;
mod publication;
pub mod signal;
