//! The state of a filter's programs between cells: counters of rows and columns,
//! pending copies of the current cell, and the size of the row.

use std::sync::Arc;

use stele_engine::world::Random;
use stele_engine::{CellView, Flow};

use super::large_row::ROW_READ_BYTES_MAX;
use super::node::Node;
use super::program::Path;

/// The overhead of a copied or kept cell, in addition to its bytes.
const CELL_BYTES: u64 = 64;

/// The state of programs between cells.
pub struct ProgramState {
    pub(super) counters: Vec<Counter>,
    /// Copies of the current cell that are still to be processed.
    pub(super) pending: Vec<Path>,
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
pub struct Counter {
    /// The number of the row or column.
    scope: u64,
    pub(super) count: u64,
}

impl Counter {
    /// Counts one more of a row or column, and returns the count.
    #[inline]
    pub fn add(&mut self, scope: u64) -> u64 {
        if self.scope != scope {
            *self = Counter { scope, count: 0 };
        }
        self.count += 1;
        self.count
    }

    /// Returns the result for a row or column, computed once.
    #[inline]
    fn cached(&mut self, scope: u64, find: impl FnOnce() -> bool) -> bool {
        if self.scope != scope {
            *self = Counter { scope, count: u64::from(find()) };
        }
        self.count != 0
    }
}

impl ProgramState {
    pub fn new(counters: usize, random: Arc<dyn Random>) -> ProgramState {
        ProgramState {
            counters: vec![Counter::default(); counters],
            pending: Vec::new(),
            random,
            row: 0,
            column: 0,
            row_bytes: 0,
            row_bytes_max: ROW_READ_BYTES_MAX,
        }
    }

    /// Returns whether the row exceeds its limit.
    #[inline]
    pub fn is_too_large(&self) -> bool {
        self.row_bytes > self.row_bytes_max
    }

    /// Returns whether a test keeps a cell, and if not, which other cells it will
    /// drop.
    #[inline]
    pub fn test(
        &mut self,
        test: &Node,
        counter: usize,
        cell: &CellView<'_>,
        value: &[u8],
    ) -> Verdict {
        let counter = &mut self.counters[counter];
        let (kept, flow) = match test {
            Node::RowKey(pattern) => {
                (counter.cached(self.row, || pattern.matches(cell.row)), Flow::NextRow)
            }
            Node::RowSample(fraction) => {
                (counter.cached(self.row, || is_sampled(&*self.random, *fraction)), Flow::NextRow)
            }
            Node::Family(pattern) => {
                (counter.cached(self.column, || pattern.matches(cell.family)), Flow::NextColumn)
            }
            Node::Qualifier(pattern) => {
                (counter.cached(self.column, || pattern.matches(cell.qualifier)), Flow::NextColumn)
            }
            Node::Column(range) => {
                let kept =
                    counter.cached(self.column, || range.contains(cell.family, cell.qualifier));
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
            other => unreachable!("{other:?} is not a test"),
        };
        if kept { Verdict::Keep } else { Verdict::Drop(flow) }
    }
}

/// The result of a test.
pub enum Verdict {
    Keep,
    /// Drops the cell, and these of the following cells.
    Drop(Flow),
}

/// Draws at random whether a row belongs to a sample of this fraction of all rows.
fn is_sampled(random: &dyn Random, fraction: f64) -> bool {
    const BITS: u32 = f64::MANTISSA_DIGITS;
    let draw = (random.next_u64() >> (u64::BITS - BITS)) as f64;
    draw < fraction * (1u64 << BITS) as f64
}

/// Returns the bytes to charge for a kept cell or a copy of one.
pub fn cell_bytes(cell: &CellView<'_>, stripped: bool) -> u64 {
    let value = if stripped { 0 } else { cell.value.len() };
    (cell.family.len() + cell.qualifier.len() + value) as u64 + CELL_BYTES
}
