//! The residual filter: what remains of a filter after the scan was narrowed,
//! compiled for one evaluation.

use std::sync::Arc;

use stele_engine::world::Random;

use super::evaluator::Evaluator;
use super::node::Node;
use super::program::{Builder, Program};
use super::stages::Stages;

/// What remains to be evaluated for the cells of a scan. Serves one evaluation.
#[derive(Debug)]
pub struct ResidualFilter {
    pub(super) strategy: Strategy,
    pub(super) labels: Vec<Arc<str>>,
    pub(super) counters: usize,
}

/// How the cells are evaluated.
#[derive(Debug)]
pub(super) enum Strategy {
    PassAll,
    BlockAll,
    /// Each cell is decided when it arrives.
    Cells(Program),
    /// The row is held until its end.
    Rows(Stages),
}

impl ResidualFilter {
    pub(super) fn new(node: &Node) -> ResidualFilter {
        let mut builder = Builder::default();
        let strategy = match node {
            Node::PassAll => Strategy::PassAll,
            Node::BlockAll => Strategy::BlockAll,
            node if node.has_condition() => Strategy::Rows(Stages::new(node, &mut builder)),
            node => Strategy::Cells(builder.program(node.stages())),
        };
        ResidualFilter { strategy, labels: builder.labels, counters: builder.counters }
    }

    /// Returns whether every cell of the scan passes unchanged.
    pub fn passes_all(&self) -> bool {
        matches!(self.strategy, Strategy::PassAll)
    }

    /// Returns whether nothing can pass, so that the scan can be skipped.
    pub fn blocks_all(&self) -> bool {
        matches!(self.strategy, Strategy::BlockAll)
    }

    /// Starts the evaluation. Row samples are drawn from `random`.
    pub fn evaluator(self, random: Arc<dyn Random>) -> Evaluator {
        Evaluator::new(self, random)
    }
}
