//! Merging sorted runs of cells: the k-way merge, tombstones, folds, purge and
//! snapshots. Does not know where the cells come from.

mod columns;
mod coverage;
mod cursor;
mod kway;
mod read;
mod rewrite;

pub use columns::{Columns, FamilyColumns};
pub use cursor::Cursor;
pub use kway::{Covered, Merge};
pub use read::{
    CellView, Flow, PlaceNote, ReadBudget, ReadEnd, ReadRules, ReadState, Reader, Sink,
};
pub use rewrite::{Out, Rewrite, RewriteRules, Rewritten};
