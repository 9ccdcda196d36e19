//! Memory fragments: the sorted cells of one (table, group) written since its last
//! flush, growing while they are read.
//!
//! A [`MemoryFragment`] is an insert-only tree ([`tree`]) whose nodes hold short key
//! words ([`keys`]) and whose keys and values are stored in an [`arena`]. One latch
//! guards the fragment and is held for a few cells at a time: writers insert under it,
//! and a [`MemoryCursor`] copies what it needs, so that no reference outlives the
//! latch.

mod arena;
mod cursor;
mod fragment;
mod keys;
mod tree;

pub use arena::MemoryValue;
pub use cursor::MemoryCursor;
pub use fragment::MemoryFragment;
