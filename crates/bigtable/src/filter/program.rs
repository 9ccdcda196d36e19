//! A filter without conditions, as a sequence of operations on one cell at a
//! time. An interleave sends copies of the cell down several paths.

use std::sync::Arc;

use stele_engine::world::Random;
use stele_engine::{CellView, Flow};

use super::large_row::ROW_BYTES_MAX;
use super::node::Node;

/// The overhead of a copied or kept cell, in addition to its bytes.
pub const CELL_BYTES: u64 = 64;

/// The changes that the filter has made to a copy of a cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// An index into the plan's labels, starting at 1; 0 is no label.
    pub label: u16,
    pub stripped: bool,
}

/// Receives the results of a program.
pub trait Taker {
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

/// Allocates labels and counters for the programs of one plan.
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
                Operation::Label(label.expect("a filter is too small for so many labels"))
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

/// The state of programs between cells.
pub struct Memory {
    counters: Vec<Counter>,
    /// Copies of the current cell that are still to be processed.
    pending: Vec<Path>,
    random: Arc<dyn Random>,
    /// The numbers of the current row and column.
    pub row: u64,
    pub column: u64,
    /// The size of what is held of the row, and of copies of its cells.
    pub row_bytes: u64,
    pub row_bytes_max: u64,
}

/// A count for one row or column; for any other the count is zero.
#[derive(Clone, Copy, Default)]
struct Counter {
    of: u64,
    count: u64,
}

impl Counter {
    fn add(&mut self, of: u64) -> u64 {
        if self.of != of {
            *self = Counter { of, count: 0 };
        }
        self.count += 1;
        self.count
    }

    /// Returns the result for a row or column, computed once.
    fn answer(&mut self, of: u64, find: impl FnOnce() -> bool) -> bool {
        if self.of != of {
            *self = Counter { of, count: u64::from(find()) };
        }
        self.count != 0
    }
}

#[derive(Clone, Copy)]
struct Path {
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

impl Memory {
    pub fn new(counters: usize, random: Arc<dyn Random>) -> Memory {
        Memory {
            counters: vec![Counter::default(); counters],
            pending: Vec::new(),
            random,
            row: 0,
            column: 0,
            row_bytes: 0,
            row_bytes_max: ROW_BYTES_MAX,
        }
    }

    pub fn overfull(&self) -> bool {
        self.row_bytes > self.row_bytes_max
    }

    /// Returns whether a test keeps a cell, and if not, which other cells it will
    /// drop.
    #[inline]
    fn test(&mut self, test: &Node, counter: usize, cell: &CellView<'_>, value: &[u8]) -> Verdict {
        let counter = &mut self.counters[counter];
        let (kept, flow) = match test {
            Node::RowKey(pattern) => {
                (counter.answer(self.row, || pattern.matches(cell.row)), Flow::NextRow)
            }
            Node::RowSample(share) => {
                (counter.answer(self.row, || drawn(&*self.random, *share)), Flow::NextRow)
            }
            Node::Family(pattern) => {
                (counter.answer(self.column, || pattern.matches(cell.family)), Flow::NextColumn)
            }
            Node::Qualifier(pattern) => {
                (counter.answer(self.column, || pattern.matches(cell.qualifier)), Flow::NextColumn)
            }
            Node::Column(range) => {
                let kept =
                    counter.answer(self.column, || range.contains(cell.family, cell.qualifier));
                (kept, Flow::NextColumn)
            }
            // Later versions are older.
            Node::Times(times) if cell.timestamp < times.min => (false, Flow::NextColumn),
            Node::Times(times) => (cell.timestamp <= times.max, Flow::Continue),
            Node::Value(pattern) => (pattern.matches(value), Flow::Continue),
            Node::ValueRange(range) => (range.contains(value), Flow::Continue),
            Node::ValueMask(mask) => {
                let all_bits = || mask.iter().zip(value).all(|(mask, value)| value & mask == *mask);
                (mask.len() == value.len() && all_bits(), Flow::Continue)
            }
            other => unreachable!("{other:?} is no test"),
        };
        if kept { Verdict::Keep } else { Verdict::Drop(flow) }
    }
}

enum Verdict {
    Keep,
    Drop(Flow),
}

/// Draws whether a row is in a sample of this fraction of all rows.
fn drawn(random: &dyn Random, share: f64) -> bool {
    const BITS: u32 = f64::MANTISSA_DIGITS;
    let draw = (random.next_u64() >> (u64::BITS - BITS)) as f64;
    draw < share * (1u64 << BITS) as f64
}

pub fn cell_bytes(cell: &CellView<'_>, stripped: bool) -> u64 {
    let value = if stripped { 0 } else { cell.value.len() };
    (cell.family.len() + cell.qualifier.len() + value) as u64 + CELL_BYTES
}

impl Program {
    /// Runs a cell through the program. Returns which of the following cells will
    /// be dropped regardless of their contents. Stops when copies make the row
    /// too large.
    #[inline]
    pub fn run(
        &self,
        memory: &mut Memory,
        cell: &CellView<'_>,
        change: Change,
        taker: &mut impl Taker,
    ) -> Flow {
        let mut least = Flow::Stop;
        let mut path = Path { at: 0, change, flow: Flow::Continue, counted: false };
        loop {
            let end = self.follow(memory, cell, &mut path, taker);
            if memory.overfull() {
                memory.pending.clear();
                return Flow::Stop;
            }
            least = least.min(end);
            match memory.pending.pop() {
                Some(next) => path = next,
                None => return least,
            }
        }
    }

    /// Follows a path to its end.
    #[inline]
    fn follow(
        &self,
        memory: &mut Memory,
        cell: &CellView<'_>,
        path: &mut Path,
        taker: &mut impl Taker,
    ) -> Flow {
        loop {
            let operation = &self.operations[path.at];
            path.at += 1;
            match operation {
                Operation::Test(test, counter) => {
                    let value = if path.change.stripped { &[] } else { cell.value };
                    if let Verdict::Drop(flow) = memory.test(test, *counter, cell, value) {
                        path.ends_for(flow);
                        return path.flow;
                    }
                }
                Operation::Offset(cells, counter) => {
                    path.counted = true;
                    if memory.counters[*counter].add(memory.row) <= *cells {
                        return path.flow;
                    }
                }
                Operation::RowLimit(cells, counter) => {
                    path.counted = true;
                    let count = memory.counters[*counter].add(memory.row);
                    if count >= *cells {
                        path.ends_for(Flow::NextRow);
                    }
                    if count > *cells {
                        return path.flow;
                    }
                }
                Operation::ColumnLimit(cells, counter) => {
                    let count = memory.counters[*counter].add(memory.column);
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
                    memory.counters[*copies].count = 0;
                    let others = starts[1..].iter().rev().map(|at| Path { at: *at, ..*path });
                    memory.pending.extend(others);
                    path.at = starts[0];
                }
                Operation::Join(behind, copies) => {
                    path.at = *behind;
                    memory.counters[*copies].count += 1;
                    if memory.counters[*copies].count > 1 {
                        memory.row_bytes += cell_bytes(cell, path.change.stripped);
                        if memory.overfull() {
                            return Flow::Stop;
                        }
                    }
                }
                Operation::Sink => {
                    taker.sink(path.change);
                    return path.flow;
                }
                Operation::Pass => {
                    taker.pass(path.change);
                    return path.flow;
                }
                Operation::Block => return Flow::NextRow,
            }
        }
    }
}
