//! The position of a reader: its row, family and column, and the state accumulated on
//! the way there.

use super::coverage::Coverage;
use super::cursor::Cursor;
use super::kway::Merge;
use super::view::ReadBudget;
use crate::cell::fold::FoldId;
use crate::cell::key::KeyParts;
use crate::cell::prefix::first_word;
use crate::schema::{FamilyRef, Ranks};
use crate::txn::Txn;

/// The position of a reader. It owns everything needed to continue in other runs with
/// the same cells, so nothing is pinned between calls.
#[derive(Clone, Debug, Default)]
pub struct ReadState {
    /// The last entry read; empty before the first.
    pub(super) key: Vec<u8>,
    pub(super) parts: Option<KeyParts>,
    pub(super) row: Vec<u8>,
    pub(super) qualifier: Vec<u8>,
    pub(super) coverage: Coverage,
    pub(super) family: Option<FamilyRef>,
    pub(super) row_returned: bool,
    pub(super) column: ColumnState,
    /// Operands of the current version, newest first, whose base has not been found
    /// yet.
    pub(super) pending: Vec<(FoldId, Vec<u8>)>,
    pub(super) pending_txn: Txn,
    /// Where the reader continues.
    pub(super) restart: Restart,
    /// Whether `coverage` is incomplete, because loading it again was interrupted.
    pub(super) coverage_is_partial: bool,
    /// The target of a skip; a reused buffer.
    pub(super) target: Vec<u8>,
    /// Deleted cells skipped since range tombstones were last consulted.
    pub(super) covered_steps: usize,
}

/// Where a reader continues that has stopped inside a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Restart {
    /// After the last entry.
    #[default]
    Entry,
    /// At the first entry of a version, of which nothing was returned.
    Version(i64),
    /// After the row, as the sink requested.
    Row,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ColumnState {
    pub(super) wanted: bool,
    pub(super) ranks: Ranks,
    pub(super) returned: u32,
    /// The timestamp of the current version.
    pub(super) version: Option<i64>,
    /// The sink requested no more cells of the column.
    pub(super) closed: bool,
    /// The version of the last deleted cell.
    pub(super) covered: Option<i64>,
}

impl ReadState {
    /// Resets the position but keeps the buffers.
    pub fn clear(&mut self) {
        self.key.clear();
        self.parts = None;
        self.coverage.enter_row(std::iter::empty());
        self.family = None;
        self.row_returned = false;
        self.column = ColumnState::default();
        self.pending.clear();
        self.restart = Restart::default();
        self.coverage_is_partial = false;
    }

    /// Returns the last entry read; empty before the first.
    pub fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// Prepares to continue after a read of the runs has failed, without the entry that
    /// could not be read. Operands whose base was not reached are read again: they may be
    /// folded into one entry before that.
    pub(super) fn interrupt(&mut self) {
        if !self.pending.is_empty() {
            self.pending.clear();
            let version = self.column.version.take().expect("operands are of a version");
            self.restart = Restart::Version(version);
        }
    }

    /// Returns the row being read, if the reader stopped inside one.
    pub fn row(&self) -> Option<&[u8]> {
        self.parts.map(|_| self.row.as_slice())
    }

    /// Returns whether the row may continue in the runs that it was read from.
    pub fn row_continues<C: Cursor>(&self, merge: &Merge<C>) -> bool {
        let Some(parts) = self.parts else { return false };
        merge.valid() && merge.key().starts_with(&self.key[..parts.row_end])
    }

    /// Ends the current row: it counts against the budget if any of it was returned.
    pub fn end_row(&mut self, budget: &mut ReadBudget) {
        if self.row_returned {
            budget.rows = budget.rows.saturating_sub(1);
            self.row_returned = false;
        }
    }

    /// Returns the prefix of the row being read.
    pub fn row_prefix(&self) -> Option<&[u8]> {
        self.parts.map(|parts| &self.key[..parts.row_end])
    }
}

/// The exclusive end of a read. Most keys are compared by their first eight bytes.
pub(super) struct Bound<'a> {
    key: &'a [u8],
    word: u64,
}

impl Bound<'_> {
    pub(super) fn new(key: &[u8]) -> Bound<'_> {
        Bound { key, word: first_word(key) }
    }

    #[inline(always)]
    pub(super) fn is_after(&self, key: &[u8]) -> bool {
        let word = first_word(key);
        word < self.word || word == self.word && key < self.key
    }
}

/// An entry compared with the one before it.
#[derive(Clone, Copy)]
pub(super) struct NextEntry {
    pub(super) parts: KeyParts,
    pub(super) change: Change,
}

/// The highest level at which an entry differs from the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Another row, but the same family and qualifier.
    NextRow,
    Row,
    Family,
    Column,
    None,
}
