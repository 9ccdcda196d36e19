//! The destination of the cells of a ReadRows scan: they are counted, go through
//! the residual filter, and are encoded into chunks.

use stele_engine::{CellView, Flow};

use super::chunk_output::ChunkOutput;
use super::chunks::Chunks;
use super::read_plan::ReadPlan;
use super::stats::ReadStats;
use crate::error::{Error, Result};
use crate::filter::Evaluator;
use crate::table::Table;

/// Takes the cells of a scan.
pub struct ReadSink {
    pub(super) output: ChunkOutput,
    pub(super) stats: Option<ReadStats>,
    pub(super) evaluator: Evaluator,
    pub(super) error: Option<Error>,
}

impl ReadSink {
    pub fn new(plan: &ReadPlan, evaluator: Evaluator) -> ReadSink {
        ReadSink {
            output: ChunkOutput::new(plan.rows_limit),
            stats: plan.stats.then(ReadStats::new),
            evaluator,
            error: None,
        }
    }

    pub fn chunks(&mut self) -> &mut Chunks {
        &mut self.output.chunks
    }

    /// Returns the bytes that were read but not sent.
    pub fn held_bytes(&self) -> usize {
        self.output.chunks.len() + self.evaluator.held_bytes()
    }

    /// Discards everything, for a read that starts over.
    pub fn restart(&mut self, plan: &ReadPlan, evaluator: Evaluator) {
        self.output = ChunkOutput::new(plan.rows_limit);
        self.evaluator = evaluator;
        self.error = None;
        if let Some(stats) = &mut self.stats {
            stats.restart();
        }
    }

    /// Processes a cell and decides how the read continues after it.
    pub fn cell(&mut self, cell: &CellView<'_>, table: &Table) -> Flow {
        if let Some(stats) = &mut self.stats {
            stats.count(cell);
        }
        match self.evaluator.cell(cell, &mut self.output) {
            Err(large) => {
                self.error.get_or_insert_with(|| large.error(&table.name));
                Flow::Stop
            }
            Ok(_) if self.output.is_full() => Flow::Stop,
            // Statistics count the cells that the filter drops.
            Ok(_) if self.stats.is_some() => Flow::Continue,
            Ok(flow) => flow,
        }
    }

    pub fn end_row(&mut self, table: &Table) {
        if let Err(large) = self.evaluator.end_row(&mut self.output) {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
        self.output.end_row();
        self.check_row(table);
    }

    /// Records an error if the current row, which may not be complete yet, is too
    /// large.
    pub fn check_row(&mut self, table: &Table) {
        if let Some(large) = self.output.large_row() {
            self.error.get_or_insert_with(|| large.error(&table.name));
        }
    }

    pub fn check(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
