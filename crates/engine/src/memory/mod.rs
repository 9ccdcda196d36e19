//! Memory fragments: the cells of one (table, group) that were written since it
//! was last serialized, sorted, growing while they are read.
//!
//! A [`MemoryFragment`] is an insert-only tree ([`tree`]) whose nodes hold short
//! key heads ([`keys`]) and whose keys and values lie in an [`arena`]. A latch
//! guards the whole and is held for a few cells at a time: writers insert under
//! it, and a [`MemoryCursor`] copies what it needs, so that no reference
//! outlives it.

mod arena;
mod cursor;
mod fragment;
mod keys;
mod tree;

pub use arena::{MemoryValue, SHARED_VALUE_MIN};
pub use cursor::MemoryCursor;
pub use fragment::MemoryFragment;
