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
use crate::regex::PatternBudget;

/// A filter that has been checked. Cheap to clone: patterns are shared.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// How many states its patterns have together, about.
    states: u32,
    memory_bytes: usize,
}

/// What [`Filter::decode_quickly`] returns.
pub enum Decoded {
    Filter(Filter),
    /// It takes longer. The filter will take this many bytes, about.
    Later(usize),
}

/// To parse a pattern takes about 100 ns for each of its bytes. What it takes
/// beyond that depends on its states, which `PatternBudget` counts.
pub const QUICK_FILTER_BYTES_MAX: usize = 4 << 10;

impl Filter {
    /// Checks a whole filter and makes it ready. No filter, like one of no
    /// kind, passes everything.
    pub fn compile(filter: Option<&v2::RowFilter>) -> Result<Filter> {
        let Some(filter) = filter else {
            return Ok(Filter { root: Node::PassAll, states: 0, memory_bytes: 0 });
        };
        check::size(filter.encoded_len())?;
        let (root, taken) = check::node(filter, PatternBudget::default())?;
        Ok(Filter::new(root, &taken))
    }

    fn new(root: Node, taken: &PatternBudget) -> Filter {
        let (states, memory_bytes) = (taken.states_taken(), taken.memory_bytes());
        Filter { root: root.in_tail(), states, memory_bytes }
    }

    /// Like [`Filter::compile`], from the bytes of the message. Only these
    /// tell a filter of no kind from one of a kind that is not known here.
    pub fn decode(bytes: &[u8]) -> Result<Filter> {
        Filter::compile(Some(&message(bytes)?))
    }

    /// The same for a thread that must not be kept for long. To move a task to
    /// another thread and back takes some ten microseconds, longer than to
    /// compile an ordinary filter; only large patterns are worth it.
    pub fn decode_quickly(bytes: &[u8]) -> Result<Decoded> {
        let (root, taken) = check::node(&message(bytes)?, PatternBudget::quick())?;
        Ok(match taken.put_off() {
            Some(memory_bytes) => Decoded::Later(memory_bytes),
            None => Decoded::Filter(Filter::new(root, &taken)),
        })
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

    /// Bytes that its patterns take while they match, at most.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Whether every cell passes unchanged.
    pub fn passes_all(&self) -> bool {
        matches!(self.root, Node::PassAll)
    }
}

fn message(bytes: &[u8]) -> Result<v2::RowFilter> {
    check::size(bytes.len())?;
    wire::check(bytes)?;
    v2::RowFilter::decode(bytes).map_err(wire::unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(pattern: &str, count: usize) -> Vec<u8> {
        use v2::row_filter::{Filter as Kind, Interleave};
        let value = Kind::ValueRegexFilter(pattern.as_bytes().to_vec().into());
        let filters = vec![v2::RowFilter { filter: Some(value) }; count];
        let all = Kind::Interleave(Interleave { filters });
        v2::RowFilter { filter: Some(all) }.encode_to_vec()
    }

    #[test]
    fn large_filters_are_put_off_and_small_ones_are_not() {
        let put_off = |pattern: &str, count: usize| {
            let decoded = Filter::decode_quickly(&encoded(pattern, count)).unwrap();
            matches!(decoded, Decoded::Later(bytes) if bytes > 0)
        };
        assert!(!put_off("user-[0-9]+", 2));
        assert!(!put_off(&"literal|".repeat(50), 4), "literals need no engine");
        assert!(put_off(r"\w{1000}x", 2), "many states");
        assert!(put_off("[ab]{200}x", 20), "many states together");
        assert!(Filter::decode(&encoded("[ab]{200}x", 20)).is_ok());
        // Too many states are refused at once, and so is what is malformed.
        let bomb = encoded(&r"\pP{1000}".repeat(32), 8);
        assert!(Filter::decode_quickly(&bomb).is_err() && Filter::decode(&bomb).is_err());
        assert!(Filter::decode_quickly(&encoded("(", 2)).is_err());
        assert!(Filter::decode_quickly(&[0; check::FILTER_BYTES_MAX + 1]).is_err());
    }
}
