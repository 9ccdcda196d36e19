//! Row filters: which cells of a row a reader sees, and how.
//!
//! A filter arrives as a message (`wire` looks at its bytes) and is checked as
//! a whole and brought into a simple form (`check`, `node`). Before the
//! scan, `narrow` asks what the filter can do without (`need`, in terms of
//! `ranges` and `columns`), has the engine's scan leave that out, and drops
//! the parts of the filter that are thereby done. What remains is a [`Plan`].
//!
//! While the scan runs, an [`Evaluator`] takes its cells. All filters except
//! conditions decide cell by cell: a `program` sends each cell through
//! the filter's operations, copies it at an interleave, and hands it on at
//! once. A condition has to see the whole row first, so the row is kept
//! (`held_row`, `row_buffer`) and goes through the filter stage by stage (`stages`).
//!
//! Where the API leaves a choice: copies of one cell come out in the order of
//! the interleave's filters; a filter may stand inside at most 20 others; an
//! offset of 0 passes everything; a condition without branches passes nothing;
//! a family that the table does not have passes nothing.

mod check;
mod columns;
mod evaluator;
mod held_row;
mod large_row;
mod narrow;
mod need;
mod node;
mod program;
mod ranges;
mod row_buffer;
mod stages;
mod wire;

pub use check::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX};
pub use evaluator::{Evaluator, Output};
pub use large_row::{LargeRow, ROW_BYTES_MAX};
pub use narrow::Plan;
use node::Node;
use prost::Message;
use stele_engine::ScanSpec;

use crate::error::Result;
use crate::proto::v2;

/// A filter that has been checked. Cheap to clone: patterns are shared.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// How many states its patterns have together, about.
    states: u32,
}

impl Filter {
    /// Checks a whole filter and makes it ready. No filter, like one of no
    /// kind, passes everything.
    pub fn compile(filter: Option<&v2::RowFilter>) -> Result<Filter> {
        let Some(filter) = filter else { return Ok(Filter { root: Node::PassAll, states: 0 }) };
        check::size(filter.encoded_len())?;
        let (root, states) = check::node(filter)?;
        Ok(Filter { root: root.in_tail(), states })
    }

    /// Like [`Filter::compile`], from the bytes of the message. Only these
    /// tell a filter of no kind from one of a kind that is not known here.
    pub fn decode(bytes: &[u8]) -> Result<Filter> {
        check::size(bytes.len())?;
        wire::check(bytes)?;
        let filter = v2::RowFilter::decode(bytes).map_err(wire::unreadable)?;
        Filter::compile(Some(&filter))
    }

    /// Has the scan leave out what the filter would drop anyway, and tells
    /// what is left to do. `families` are those of the table.
    pub fn narrow<'f>(
        &self,
        families: impl IntoIterator<Item = &'f str>,
        spec: &mut ScanSpec,
    ) -> Plan {
        narrow::narrow(&self.root, families, spec)
    }

    /// All of the filter, for cells that come from elsewhere than a narrowed
    /// scan.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.root)
    }

    /// How many states the patterns have together, about: what matching costs
    /// at most, for each byte.
    pub fn states(&self) -> u32 {
        self.states
    }

    /// Whether every cell passes unchanged.
    pub fn passes_all(&self) -> bool {
        matches!(self.root, Node::PassAll)
    }
}
