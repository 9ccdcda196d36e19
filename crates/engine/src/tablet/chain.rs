//! A tablet: a range of rows and, for each group, the chain of disk fragments
//! that hold them.

use std::sync::Arc;

use super::link::Link;
use super::run::Run;
use crate::cell::rows::RowRange;
use crate::txn::Txn;

/// A range of rows. Immutable: a change creates a new one.
#[derive(Clone)]
pub struct Tablet {
    pub rows: RowRange,
    /// One per group of the schema.
    pub chains: Vec<Chain>,
}

impl Tablet {
    /// Whether the tablet's last row is before `row`.
    pub fn ends_by(&self, row: &[u8]) -> bool {
        self.rows.end.as_ref().is_some_and(|end| end.as_slice() <= row)
    }
}

/// The disk fragments of one group. For any row, cells in a later run are newer
/// than those in an earlier one.
#[derive(Clone, Default)]
pub struct Chain {
    pub flushed_through: Txn,
    /// Oldest first.
    pub runs: Vec<Run>,
}

impl Chain {
    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.runs.iter().flat_map(Run::links)
    }
}
