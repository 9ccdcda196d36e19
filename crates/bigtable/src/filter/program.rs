//! A filter without conditions, as a sequence of operations on one cell at a
//! time. An interleave sends copies of the cell down several paths.

use std::sync::Arc;

use stele_engine::{CellView, Flow};

use super::node::Node;
use super::program_state::{ProgramState, Verdict, cell_bytes};

/// The changes that the filter has made to a copy of a cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// An index into the residual filter's labels, starting at 1; 0 means no label.
    pub label: u16,
    pub stripped: bool,
}

/// Receives the results of a program.
pub trait ProgramOutput {
    fn pass(&mut self, change: Change);
    /// The copy bypasses all that follows.
    fn sink(&mut self, change: Change);
}

/// Operations; each continues with the next one.
#[derive(Debug)]
pub struct Program {
    operations: Vec<Operation>,
}

#[derive(Debug)]
enum Operation {
    /// Drops or keeps the cell. The counter caches the result for a row or a
    /// column.
    Test(Node, usize),
    Offset(u64, usize),
    RowLimit(u64, usize),
    ColumnLimit(u64, usize),
    Strip,
    Label(u16),
    /// Continues at each of the positions. The counter is that of the join.
    Fork(Vec<usize>, usize),
    /// The end of a path of a fork: continues after the last path. The counter
    /// holds how many copies of the cell arrived here.
    Join(usize, usize),
    Sink,
    Block,
    Pass,
}

/// Allocates labels and counters for the programs of one residual filter.
#[derive(Debug, Default)]
pub struct Builder {
    pub labels: Vec<Arc<str>>,
    pub counters: usize,
}

impl Builder {
    pub fn program(&mut self, stages: &[Node]) -> Program {
        let mut operations = Vec::new();
        stages.iter().for_each(|stage| self.add(stage, &mut operations));
        operations.push(Operation::Pass);
        Program { operations }
    }

    fn counter(&mut self) -> usize {
        self.counters += 1;
        self.counters - 1
    }

    fn add(&mut self, node: &Node, operations: &mut Vec<Operation>) {
        let operation = match node {
            Node::PassAll => return,
            Node::Chain(stages) => {
                return stages.iter().for_each(|stage| self.add(stage, operations));
            }
            Node::Interleave(branches) => return self.fork(branches, operations),
            Node::Condition(_) => unreachable!("conditions are stages of their own"),
            Node::Sink => Operation::Sink,
            Node::BlockAll => Operation::Block,
            Node::Strip => Operation::Strip,
            Node::Label(name) => {
                self.labels.push(name.clone());
                let label = u16::try_from(self.labels.len());
                Operation::Label(label.expect("the size limit of a filter allows fewer labels"))
            }
            Node::RowOffset(cells) => Operation::Offset(u64::from(*cells), self.counter()),
            Node::RowLimit(cells) => Operation::RowLimit(u64::from(*cells), self.counter()),
            Node::ColumnLimit(cells) => Operation::ColumnLimit(u64::from(*cells), self.counter()),
            test => Operation::Test(test.clone(), self.counter()),
        };
        operations.push(operation);
    }

    fn fork(&mut self, branches: &[Node], operations: &mut Vec<Operation>) {
        let copies = self.counter();
        let fork = operations.len();
        operations.push(Operation::Fork(Vec::new(), copies));
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for branch in branches {
            starts.push(operations.len());
            self.add(branch, operations);
            ends.push(operations.len());
            operations.push(Operation::Join(0, copies));
        }
        operations[fork] = Operation::Fork(starts, copies);
        let behind = operations.len();
        for end in ends {
            operations[end] = Operation::Join(behind, copies);
        }
    }
}

/// A copy of a cell on its way through the operations.
#[derive(Clone, Copy)]
pub struct Path {
    at: usize,
    change: Change,
    flow: Flow,
    /// The cell has been counted for the row, so neither it nor others like it
    /// may be skipped, unless they are the rest of the row.
    counted: bool,
}

impl Path {
    /// Records that the path passes none of these cells.
    fn ends_for(&mut self, cells: Flow) {
        if cells != Flow::NextColumn || !self.counted {
            self.flow = self.flow.max(cells);
        }
    }
}

impl Program {
    /// Runs a cell through the program. Returns which of the following cells will
    /// be dropped regardless of their contents. Stops when copies make the row
    /// too large.
    #[inline]
    pub fn run(
        &self,
        state: &mut ProgramState,
        cell: &CellView<'_>,
        change: Change,
        output: &mut impl ProgramOutput,
    ) -> Flow {
        let mut least = Flow::Stop;
        let mut path = Path { at: 0, change, flow: Flow::Continue, counted: false };
        loop {
            let end = self.follow(state, cell, &mut path, output);
            if state.is_too_large() {
                state.pending.clear();
                return Flow::Stop;
            }
            least = least.min(end);
            match state.pending.pop() {
                Some(next) => path = next,
                None => return least,
            }
        }
    }

    /// Follows a path to its end.
    #[inline]
    fn follow(
        &self,
        state: &mut ProgramState,
        cell: &CellView<'_>,
        path: &mut Path,
        output: &mut impl ProgramOutput,
    ) -> Flow {
        loop {
            let operation = &self.operations[path.at];
            path.at += 1;
            match operation {
                Operation::Test(test, counter) => {
                    let value = if path.change.stripped { &[] } else { cell.value };
                    if let Verdict::Drop(flow) = state.test(test, *counter, cell, value) {
                        path.ends_for(flow);
                        return path.flow;
                    }
                }
                Operation::Offset(cells, counter) => {
                    path.counted = true;
                    if state.counters[*counter].add(state.row) <= *cells {
                        return path.flow;
                    }
                }
                Operation::RowLimit(cells, counter) => {
                    path.counted = true;
                    let count = state.counters[*counter].add(state.row);
                    if count >= *cells {
                        path.ends_for(Flow::NextRow);
                    }
                    if count > *cells {
                        return path.flow;
                    }
                }
                Operation::ColumnLimit(cells, counter) => {
                    let count = state.counters[*counter].add(state.column);
                    if count >= *cells {
                        path.ends_for(Flow::NextColumn);
                    }
                    if count > *cells {
                        return path.flow;
                    }
                }
                Operation::Strip => path.change.stripped = true,
                Operation::Label(label) => path.change.label = *label,
                Operation::Fork(starts, copies) => {
                    state.counters[*copies].count = 0;
                    let others = starts[1..].iter().rev().map(|at| Path { at: *at, ..*path });
                    state.pending.extend(others);
                    path.at = starts[0];
                }
                Operation::Join(behind, copies) => {
                    path.at = *behind;
                    state.counters[*copies].count += 1;
                    if state.counters[*copies].count > 1 {
                        state.row_bytes += cell_bytes(cell, path.change.stripped);
                        if state.is_too_large() {
                            return Flow::Stop;
                        }
                    }
                }
                Operation::Sink => {
                    output.sink(path.change);
                    return path.flow;
                }
                Operation::Pass => {
                    output.pass(path.change);
                    return path.flow;
                }
                Operation::Block => return Flow::NextRow,
            }
        }
    }
}
