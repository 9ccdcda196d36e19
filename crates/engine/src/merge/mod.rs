//! Merging sorted runs of cells: the k-way merge, tombstones, folds, purge and
//! snapshots. Independent of where the cells come from.

mod columns;
mod coverage;
mod cursor;
mod kway;
mod read;
mod rewrite;
mod skip;
mod state;
mod steps;
mod view;

pub use columns::{Columns, FamilyColumns};
pub use cursor::{Cursor, EntryPlace};
pub use kway::{Covered, Merge};
pub use read::Reader;
pub use rewrite::{Rewrite, RewriteOutput, RewriteRules, Rewritten};
pub use state::ReadState;
#[cfg(test)]
pub use steps::{StepOf, steps};
pub use view::{CellView, Flow, PlaceNote, ReadBudget, ReadEnd, ReadRules, Sink};
