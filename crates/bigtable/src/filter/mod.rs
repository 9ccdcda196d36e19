//! Row filters: which cells of a row a reader sees, and how.
//!
//! A filter arrives as a message (`wire` scans its bytes), is validated as a
//! whole and simplified (`check`, `node`). Before the scan, `narrow` determines
//! what the filter does not need (`need`, in terms of `ranges` and `columns`),
//! excludes it from the engine's scan, and removes the parts of the filter that
//! this makes redundant. The remainder is a [`Plan`].
//!
//! During the scan, an [`Evaluator`] processes its cells. All filters except
//! conditions decide cell by cell: a `program` sends each cell through the
//! filter's operations, copies it at an interleave, and outputs it immediately. A
//! condition has to see the whole row first, so the row is kept (`held_row`,
//! `row_buffer`) and goes through the filter stage by stage (`stages`).
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

/// A validated filter. Cheap to clone: patterns are shared.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// The approximate total number of states of its patterns.
    states: u32,
    memory_bytes: usize,
}

/// The result of [`Filter::decode_quickly`].
pub enum Decoded {
    Filter(Filter),
    /// Compiling takes longer. The filter will take approximately this many
    /// bytes.
    Later(usize),
}

/// Parsing a pattern takes about 100 ns per byte. The remaining time depends on
/// its states, which `PatternBudget` counts.
pub const QUICK_FILTER_BYTES_MAX: usize = 4 << 10;

impl Filter {
    /// Validates and compiles a filter. No filter, like one without a kind,
    /// passes everything.
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

    /// Like [`Filter::compile`], from the bytes of the message. Only the bytes
    /// distinguish a filter without a kind from one of an unknown kind.
    pub fn decode(bytes: &[u8]) -> Result<Filter> {
        Filter::compile(Some(&message(bytes)?))
    }

    /// Like [`Filter::decode`], for a thread that must not be blocked for long.
    /// Moving a task to another thread and back takes some ten microseconds,
    /// longer than compiling an ordinary filter; only large patterns are worth
    /// it.
    pub fn decode_quickly(bytes: &[u8]) -> Result<Decoded> {
        let (root, taken) = check::node(&message(bytes)?, PatternBudget::quick())?;
        Ok(match taken.put_off() {
            Some(memory_bytes) => Decoded::Later(memory_bytes),
            None => Decoded::Filter(Filter::new(root, &taken)),
        })
    }

    /// Excludes from the scan what the filter would drop anyway, and returns what
    /// remains to be evaluated. `families` are those of the table.
    pub fn narrow<'f>(
        &self,
        families: impl IntoIterator<Item = &'f str>,
        spec: &mut ScanSpec,
    ) -> Plan {
        narrow::narrow(&self.root, families, spec)
    }

    /// Returns a plan of the whole filter, for cells that do not come from a
    /// narrowed scan.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.root)
    }

    /// Returns the approximate total number of states of the patterns, which
    /// bounds the cost of matching per byte.
    pub fn states(&self) -> u32 {
        self.states
    }

    /// Returns the maximum memory of its patterns while they match, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns whether every cell passes unchanged.
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
        // Too many states are rejected immediately, and so are malformed
        // patterns.
        let bomb = encoded(&r"\pP{1000}".repeat(32), 8);
        assert!(Filter::decode_quickly(&bomb).is_err() && Filter::decode(&bomb).is_err());
        assert!(Filter::decode_quickly(&encoded("(", 2)).is_err());
        assert!(Filter::decode_quickly(&[0; check::FILTER_BYTES_MAX + 1]).is_err());
    }
}
