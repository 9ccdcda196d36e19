//! A filter as requests carry it: decoded, validated and compiled once per call.

use prost::Message;
use stele_engine::ScanSpec;

use super::node::Node;
use super::residual::ResidualFilter;
use super::{check, narrow, wire};
use crate::error::Result;
use crate::proto::v2;
use stele_re2::PatternBudget;

/// A validated filter. Cheap to clone: patterns are shared.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// The approximate total number of states of its patterns.
    states: u32,
    memory_bytes: usize,
}

/// The result of [`Filter::decode_or_defer`].
pub enum Decoded {
    Filter(Filter),
    /// Compiling takes longer. The filter will take approximately this many
    /// bytes.
    Deferred(usize),
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
        let (root, budget) = check::filter(filter, PatternBudget::default())?;
        Ok(Filter::new(root, &budget))
    }

    fn new(root: Node, budget: &PatternBudget) -> Filter {
        let (states, memory_bytes) = (budget.states_used(), budget.memory_bytes());
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
    pub fn decode_or_defer(bytes: &[u8]) -> Result<Decoded> {
        let (root, budget) = check::filter(&message(bytes)?, PatternBudget::quick())?;
        Ok(match budget.deferred_bytes() {
            Some(memory_bytes) => Decoded::Deferred(memory_bytes),
            None => Decoded::Filter(Filter::new(root, &budget)),
        })
    }

    /// Excludes from the scan what the filter would drop anyway, and returns what
    /// remains to be evaluated. `families` are those of the table.
    pub fn narrow<'f>(
        &self,
        families: impl IntoIterator<Item = &'f str>,
        spec: &mut ScanSpec,
    ) -> ResidualFilter {
        narrow::narrow(&self.root, families, spec)
    }

    /// Returns the whole filter as a residual filter, for cells that do not come
    /// from a narrowed scan.
    pub fn whole(&self) -> ResidualFilter {
        ResidualFilter::new(&self.root)
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
    v2::RowFilter::decode(bytes).map_err(wire::decode_error)
}

#[cfg(test)]
mod tests {
    use super::check::FILTER_BYTES_MAX;
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
            let decoded = Filter::decode_or_defer(&encoded(pattern, count)).unwrap();
            matches!(decoded, Decoded::Deferred(bytes) if bytes > 0)
        };
        assert!(!put_off("user-[0-9]+", 2));
        assert!(!put_off(&"literal|".repeat(50), 4), "literals need no engine");
        assert!(put_off(r"\w{1000}x", 2), "many states");
        assert!(put_off("[ab]{200}x", 20), "many states together");
        assert!(Filter::decode(&encoded("[ab]{200}x", 20)).is_ok());
        // Too many states are rejected immediately, and so are malformed
        // patterns.
        let bomb = encoded(&r"\pP{1000}".repeat(32), 8);
        assert!(Filter::decode_or_defer(&bomb).is_err() && Filter::decode(&bomb).is_err());
        assert!(Filter::decode_or_defer(&encoded("(", 2)).is_err());
        assert!(Filter::decode_or_defer(&[0; FILTER_BYTES_MAX + 1]).is_err());
    }
}
