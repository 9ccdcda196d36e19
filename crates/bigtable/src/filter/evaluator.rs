//! Takes the cells of a scan, row after row, and gives those that the filter
//! lets through to an output. Cells are borrowed, and copied only where the
//! filter has to see the whole row before it can decide.

use std::sync::Arc;

use stele_engine::CellView;
use stele_engine::world::Random;

use super::large_row::{LargeRow, ROW_BYTES_MAX};
use super::narrow::{Plan, Work};
use super::program::{Change, Memory, Taker, cell_bytes};
use super::row_buffer::RowBuffer;
use super::stages::{Item, Stages};

/// Where the cells go that a filter lets through.
pub trait Output {
    /// Called in row order: a cell, its value stripped if the filter says so,
    /// and its label. Copies of a cell follow one another.
    fn cell(&mut self, cell: &CellView<'_>, label: Option<&str>);
}

/// Which of the cells to come will be dropped whatever they are. The evaluator
/// keeps this in mind itself; a reader may save itself the trouble of finding
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// None is known.
    Continue,
    /// Those of this column.
    NextColumn,
    /// Those of this row.
    NextRow,
    /// All.
    Stop,
}

/// A filter at work.
pub struct Evaluator {
    work: Work,
    labels: Vec<Arc<str>>,
    memory: Memory,
    /// The row and column of the last cell.
    row: Option<Vec<u8>>,
    spare_row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    skip: Flow,
    held: Held,
}

/// A row that is not whole yet.
#[derive(Default)]
struct Held {
    cells: RowBuffer,
    items: Vec<Item>,
    sunk: Vec<Item>,
    /// The copies of the cell at hand, and whether each was sunk.
    copies: Vec<(Change, bool)>,
}

impl Evaluator {
    pub(super) fn new(plan: Plan, random: Arc<dyn Random>) -> Evaluator {
        Evaluator {
            work: plan.work,
            labels: plan.labels,
            memory: Memory::new(plan.counters, random),
            row: None,
            spare_row: Vec::new(),
            family: Vec::new(),
            qualifier: Vec::new(),
            skip: Flow::Continue,
            held: Held::default(),
        }
    }

    /// Takes the next cell. When it begins a row, the one before is over.
    #[inline]
    pub fn cell(
        &mut self,
        cell: &CellView<'_>,
        output: &mut impl Output,
    ) -> Result<Flow, LargeRow> {
        match self.work {
            Work::PassAll => {
                output.cell(cell, None);
                Ok(Flow::Continue)
            }
            Work::BlockAll => Ok(Flow::Stop),
            Work::Cells(_) | Work::Rows(_) => self.filter(cell, output),
        }
    }

    /// The row at hand is over, if there is one: what is held of it comes out.
    /// To be called behind the last cell.
    pub fn end_row(&mut self, output: &mut impl Output) -> Result<(), LargeRow> {
        let Some(row) = self.row.take() else { return Ok(()) };
        let outcome = match &self.work {
            Work::Rows(stages) => self.held.finish(stages, &mut self.memory, &self.labels, output),
            _ => Ok(()),
        };
        let outcome = outcome.map_err(|bytes| LargeRow { row: row.clone(), bytes });
        self.spare_row = row;
        outcome
    }

    fn filter(&mut self, cell: &CellView<'_>, output: &mut impl Output) -> Result<Flow, LargeRow> {
        if self.row.as_deref() != Some(cell.row) {
            self.end_row(output)?;
            self.begin_row(cell);
        } else if self.qualifier != cell.qualifier || self.family != cell.family {
            self.begin_column(cell);
        }
        if self.skip > Flow::Continue {
            return Ok(self.skip);
        }
        self.skip = match &self.work {
            Work::Cells(program) => {
                let mut direct = Direct { cell, labels: &self.labels, output };
                program.run(&mut self.memory, cell, Change::default(), &mut direct)
            }
            Work::Rows(stages) => self.held.keep(stages, &mut self.memory, cell),
            Work::PassAll | Work::BlockAll => unreachable!("decided without looking at the cell"),
        };
        if self.memory.overfull() {
            return Err(LargeRow { row: cell.row.to_vec(), bytes: self.memory.row_bytes });
        }
        Ok(self.skip)
    }

    fn begin_row(&mut self, cell: &CellView<'_>) {
        let mut row = std::mem::take(&mut self.spare_row);
        row.clear();
        row.extend_from_slice(cell.row);
        self.row = Some(row);
        self.memory.row += 1;
        self.memory.row_bytes = 0;
        if let Work::Rows(_) = self.work {
            self.held.begin(cell.row);
        }
        self.skip = Flow::Continue;
        self.begin_column(cell);
    }

    fn begin_column(&mut self, cell: &CellView<'_>) {
        self.family.clear();
        self.family.extend_from_slice(cell.family);
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier);
        self.memory.column += 1;
        if self.skip == Flow::NextColumn {
            self.skip = Flow::Continue;
        }
    }
}

/// Shows a copy of a cell to the output.
fn show(cell: &CellView<'_>, change: Change, labels: &[Arc<str>], output: &mut impl Output) {
    let label = change.label.checked_sub(1).map(|at| &*labels[usize::from(at)]);
    if change.stripped {
        output.cell(&CellView { value: &[], ..*cell }, label);
    } else {
        output.cell(cell, label);
    }
}

/// Passes on what comes out of a program at once.
struct Direct<'d, O> {
    cell: &'d CellView<'d>,
    labels: &'d [Arc<str>],
    output: &'d mut O,
}

impl<O: Output> Taker for Direct<'_, O> {
    #[inline]
    fn pass(&mut self, change: Change) {
        show(self.cell, change, self.labels, self.output);
    }

    fn sink(&mut self, change: Change) {
        self.pass(change);
    }
}

impl Taker for Vec<(Change, bool)> {
    fn pass(&mut self, change: Change) {
        self.push((change, false));
    }

    fn sink(&mut self, change: Change) {
        self.push((change, true));
    }
}

impl Held {
    fn begin(&mut self, row: &[u8]) {
        self.cells.begin(row);
        self.items.clear();
        self.sunk.clear();
    }

    /// Keeps what the first stages let through of a cell.
    fn keep(&mut self, stages: &Stages, memory: &mut Memory, cell: &CellView<'_>) -> Flow {
        self.copies.clear();
        let flow = stages.first.run(memory, cell, Change::default(), &mut self.copies);
        if self.copies.is_empty() || memory.overfull() {
            return flow;
        }
        let stripped = self.copies.iter().all(|(change, _)| change.stripped);
        memory.row_bytes += cell_bytes(cell, stripped);
        if memory.overfull() {
            return flow;
        }
        let value = if stripped { &[] } else { cell.value };
        let at = self.cells.push(cell, memory.column, value);
        for (change, sunk) in &self.copies {
            let list = if *sunk { &mut self.sunk } else { &mut self.items };
            list.push(Item::new(at, *change));
        }
        flow
    }

    /// Shows what comes of the row. An error is the size it came to.
    fn finish(
        &mut self,
        stages: &Stages,
        memory: &mut Memory,
        labels: &[Arc<str>],
        output: &mut impl Output,
    ) -> Result<(), u64> {
        let column = memory.column;
        let passed = stages.apply(&self.cells, memory, &self.items, &mut self.sunk);
        let passed = passed.map_err(|_| memory.row_bytes)?;
        // Later rows must not find a column's number again.
        memory.column = column;
        self.sunk.sort_by_key(|item| item.cell);
        let mut bytes = 0;
        let mut sunk = self.sunk.iter().peekable();
        let mut show_item = |item: &Item| {
            let cell = self.cells.get(item.cell);
            bytes += cell_bytes(&cell, item.change.stripped);
            show(&cell, item.change, labels, output);
            if bytes > ROW_BYTES_MAX { Err(bytes) } else { Ok(()) }
        };
        for item in &passed {
            while let Some(first) = sunk.next_if(|sunk| sunk.cell < item.cell) {
                show_item(first)?;
            }
            show_item(item)?;
        }
        sunk.try_for_each(show_item)
    }
}
