//! The cells of one row, kept until the row is complete.

use stele_engine::{CellView, Txn};

/// The memory of a larger row is released when the next row begins.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub struct RowBuffer {
    row: Vec<u8>,
    bytes: Vec<u8>,
    columns: Vec<Column>,
    cells: Vec<Cell>,
}

struct Column {
    /// The column number assigned by the reader of the row.
    number: u64,
    start: usize,
    family_len: usize,
    qualifier_len: usize,
}

struct Cell {
    column: u32,
    timestamp: i64,
    txn: Txn,
    start: usize,
    len: usize,
}

impl RowBuffer {
    pub fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            *self = RowBuffer { row: std::mem::take(&mut self.row), ..RowBuffer::default() };
        }
        self.bytes.clear();
        self.columns.clear();
        self.cells.clear();
    }

    /// Keeps a cell of the numbered column, and returns its index.
    pub fn push(&mut self, cell: &CellView<'_>, column: u64, value: &[u8]) -> u32 {
        if self.columns.last().is_none_or(|last| last.number != column) {
            self.columns.push(Column {
                number: column,
                start: self.bytes.len(),
                family_len: cell.family.len(),
                qualifier_len: cell.qualifier.len(),
            });
            self.bytes.extend_from_slice(cell.family);
            self.bytes.extend_from_slice(cell.qualifier);
        }
        self.cells.push(Cell {
            column: index(self.columns.len() - 1),
            timestamp: cell.timestamp,
            txn: cell.txn,
            start: self.bytes.len(),
            len: value.len(),
        });
        self.bytes.extend_from_slice(value);
        index(self.cells.len() - 1)
    }

    pub fn get(&self, at: u32) -> CellView<'_> {
        let cell = &self.cells[at as usize];
        let column = &self.columns[cell.column as usize];
        let (family, rest) = self.bytes[column.start..].split_at(column.family_len);
        CellView {
            row: &self.row,
            family,
            qualifier: &rest[..column.qualifier_len],
            timestamp: cell.timestamp,
            txn: cell.txn,
            marker: false,
            value: &self.bytes[cell.start..][..cell.len],
        }
    }

    /// Returns the column number of a kept cell.
    pub fn column(&self, at: u32) -> u64 {
        self.columns[self.cells[at as usize].column as usize].number
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("the size limit of a row allows fewer cells")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_cells_come_back() {
        let cell = |qualifier: &'static [u8], timestamp, value: &'static [u8]| CellView {
            row: b"r",
            family: b"f",
            qualifier,
            timestamp,
            txn: Txn::ZERO,
            marker: false,
            value,
        };
        let cells = [cell(b"", 2, b"x"), cell(b"", 1, b""), cell(b"q", 5, b"yz")];
        let mut buffer = RowBuffer::default();
        for _ in 0..2 {
            buffer.begin(b"r");
            for (at, cell) in cells.iter().enumerate() {
                let column = 7 + cell.qualifier.len() as u64;
                assert_eq!(buffer.push(cell, column, cell.value), at as u32);
            }
            for (at, cell) in cells.iter().enumerate() {
                assert_eq!(buffer.get(at as u32), *cell);
            }
            assert_eq!([buffer.column(0), buffer.column(1), buffer.column(2)], [7, 7, 8]);
        }
    }
}
