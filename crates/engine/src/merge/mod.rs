//! Merging sorted runs of cells: the k-way merge, tombstones, folds, purge and
//! snapshots. Does not know where the cells come from.

pub mod cursor;

pub use cursor::Cursor;
