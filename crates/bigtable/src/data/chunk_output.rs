//! Writes the output of a filter into chunks, subject to the client's row limit
//! and the size limit of a row.

use stele_engine::CellView;

use super::chunks::{Cell, Chunks};
use crate::filter::{LargeRow, Output, ROW_READ_BYTES_MAX};

/// Encodes cells into chunks, up to a number of rows.
pub struct ChunkOutput {
    pub chunks: Chunks,
    rows_limit: u64,
    full: bool,
    row_bytes: u64,
    pub(super) row_bytes_max: u64,
    large_row: Option<LargeRow>,
}

impl ChunkOutput {
    pub fn new(rows_limit: u64) -> ChunkOutput {
        ChunkOutput {
            chunks: Chunks::default(),
            rows_limit,
            full: false,
            row_bytes: 0,
            row_bytes_max: ROW_READ_BYTES_MAX,
            large_row: None,
        }
    }

    /// Returns whether no more cells are accepted.
    pub fn is_full(&self) -> bool {
        self.full || self.large_row.is_some()
    }

    /// Returns the row that was too large to be sent whole.
    pub fn large_row(&self) -> Option<&LargeRow> {
        self.large_row.as_ref()
    }

    /// Ends the current row. Has no effect if the row had no cells.
    pub fn end_row(&mut self) {
        // An abandoned row must not appear complete.
        if self.large_row.is_none() {
            self.chunks.end_row();
        }
        self.row_bytes = 0;
        self.full = self.full || self.chunks.counts().0 >= self.rows_limit;
    }
}

impl Output for ChunkOutput {
    fn cell(&mut self, cell: &CellView<'_>, label: Option<&str>) {
        if !self.chunks.is_in_row(cell.row) {
            self.end_row();
        }
        if self.is_full() {
            return;
        }
        self.row_bytes += (cell.qualifier.len() + cell.value.len()) as u64;
        if self.row_bytes > self.row_bytes_max {
            self.large_row = Some(LargeRow { row: cell.row.to_vec(), bytes: self.row_bytes });
            return;
        }
        self.chunks.cell(&Cell {
            row: cell.row,
            family: cell.family,
            qualifier: cell.qualifier,
            timestamp: cell.timestamp,
            label,
            value: cell.value,
        });
    }
}
