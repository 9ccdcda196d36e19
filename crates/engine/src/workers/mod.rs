//! What goes on in the background: memory is serialized to disk fragments, and
//! chains of fragments are compacted. A worker either has a thread of its own
//! or is run by the owner of the store, step by step.

pub mod choose;
pub mod claims;
pub mod compact;
pub mod output;
pub mod serialize;
pub mod signal;
pub mod troubles;
