//! Row filters: which cells of a row a reader sees, and how.
//!
//! A filter arrives as a message (`wire` scans its bytes), is validated as a
//! whole and simplified (`check`, `leaf`, `node`), and is then a [`Filter`]. Before
//! the scan, `narrow` determines what the filter does not need (`need`, in terms of
//! `ranges` and `columns`), excludes it from the engine's scan, and removes the
//! parts of the filter that this makes redundant. What remains is a
//! [`ResidualFilter`].
//!
//! During the scan, an [`Evaluator`] processes its cells. All filters except
//! conditions decide cell by cell: a `program` sends each cell through the
//! filter's operations, copies it at an interleave, and outputs it immediately;
//! its counters are in `program_state`. A condition has to see the whole row first,
//! so the row is kept (`held_row`, `row_buffer`) and goes through the filter stage
//! by stage (`stages`). A row that becomes too large is a [`LargeRow`].
//!
//! Where the API leaves a choice: copies of one cell are returned in the order of
//! the interleave's filters; filters nest at most 20 levels deep; an offset of 0
//! passes everything; a condition without branches passes nothing; a family that
//! the table does not have passes nothing.

mod check;
mod columns;
mod evaluator;
mod held_row;
mod large_row;
mod leaf;
mod narrow;
mod need;
mod node;
mod program;
mod program_state;
pub(crate) mod ranges;
mod residual;
mod row_buffer;
mod row_filter;
mod stages;
mod wire;

#[cfg(test)]
mod messages;

pub use check::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX};
pub use evaluator::{Evaluator, Output};
pub use large_row::{LargeRow, ROW_READ_BYTES_MAX};
pub use residual::ResidualFilter;
pub use row_filter::{Decoded, Filter, QUICK_FILTER_BYTES_MAX};
