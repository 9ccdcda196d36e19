//! A row that a condition holds: its cells as they arrive, and its evaluation
//! once it is complete.

use std::sync::Arc;

use stele_engine::{CellView, Flow};

use super::evaluator::{Output, emit};
use super::program::{Change, ProgramOutput};
use super::program_state::{ProgramState, cell_bytes};
use super::row_buffer::RowBuffer;
use super::stages::{Item, Stages};

/// The lists of items of a row with more cells are released with it.
const ITEMS_KEPT_MAX: usize = 4096;

/// The cells of the row so far.
#[derive(Default)]
pub struct HeldRow {
    cells: RowBuffer,
    items: Vec<Item>,
    sunk: Vec<Item>,
    /// The copies of the current cell, and whether each was sunk.
    copies: Vec<(Change, bool)>,
}

impl ProgramOutput for Vec<(Change, bool)> {
    fn pass(&mut self, change: Change) {
        self.push((change, false));
    }

    fn sink(&mut self, change: Change) {
        self.push((change, true));
    }
}

impl HeldRow {
    pub fn begin(&mut self, row: &[u8]) {
        self.release();
        self.cells.begin(row);
    }

    /// Discards the row. A reader may wait for long between two rows, and what it holds
    /// then is not charged.
    fn release(&mut self) {
        self.cells.release();
        for items in [&mut self.items, &mut self.sunk] {
            items.clear();
            items.shrink_to(ITEMS_KEPT_MAX);
        }
    }

    /// Keeps what the first stages pass of a cell.
    pub fn keep(&mut self, stages: &Stages, state: &mut ProgramState, cell: &CellView<'_>) -> Flow {
        self.copies.clear();
        let flow = stages.first.run(state, cell, Change::default(), &mut self.copies);
        if self.copies.is_empty() || state.is_too_large() {
            return flow;
        }
        let stripped = self.copies.iter().all(|(change, _)| change.stripped);
        state.row_bytes += cell_bytes(cell, stripped);
        if state.is_too_large() {
            return flow;
        }
        let value = if stripped { &[] } else { cell.value };
        let at = self.cells.push(cell, state.column, value);
        for (change, sunk) in &self.copies {
            let list = if *sunk { &mut self.sunk } else { &mut self.items };
            list.push(Item::new(at, *change));
        }
        flow
    }

    /// Evaluates the row, outputs the result and discards the row. The error is the size
    /// that the row reached.
    pub fn finish(
        &mut self,
        stages: &Stages,
        state: &mut ProgramState,
        labels: &[Arc<str>],
        output: &mut impl Output,
    ) -> Result<(), u64> {
        let outcome = self.evaluate(stages, state, labels, output);
        self.release();
        outcome
    }

    /// Returns the memory that is held of the cells.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.cells.capacity()
    }

    fn evaluate(
        &mut self,
        stages: &Stages,
        state: &mut ProgramState,
        labels: &[Arc<str>],
        output: &mut impl Output,
    ) -> Result<(), u64> {
        let column = state.column;
        let passed = stages.apply(&self.cells, state, &self.items, &mut self.sunk);
        let passed = passed.map_err(|_| state.row_bytes)?;
        // A later row must not see the same column number again.
        state.column = column;
        self.sunk.sort_by_key(|item| item.cell);
        let (mut bytes, bytes_max) = (0, state.row_bytes_max);
        let mut sunk = self.sunk.iter().peekable();
        let mut emit_item = |item: &Item| {
            let cell = self.cells.get(item.cell);
            bytes += cell_bytes(&cell, item.change.stripped);
            emit(&cell, item.change, labels, output);
            if bytes > bytes_max { Err(bytes) } else { Ok(()) }
        };
        for item in &passed {
            while let Some(first) = sunk.next_if(|sunk| sunk.cell < item.cell) {
                emit_item(first)?;
            }
            emit_item(item)?;
        }
        sunk.try_for_each(emit_item)
    }
}
