//! The cells of one row, kept until the row is complete.

use stele_engine::{CellView, Txn};

/// Bytes are kept in chunks, so that a row that grows is never copied: a larger value has a
/// chunk of its own.
const CHUNK_BYTES: usize = 256 << 10;

#[derive(Default)]
pub struct RowBuffer {
    row: Vec<u8>,
    chunks: Vec<Vec<u8>>,
    columns: Vec<Column>,
    cells: Vec<Cell>,
}

struct Column {
    /// The column number assigned by the reader of the row.
    number: u64,
    /// The family and the qualifier.
    name: Place,
    family_len: usize,
}

struct Cell {
    column: u32,
    timestamp: i64,
    txn: Txn,
    value: Place,
}

/// The place of some bytes in the chunks.
#[derive(Clone, Copy)]
struct Place {
    chunk: u32,
    start: u32,
    len: usize,
}

impl RowBuffer {
    pub fn begin(&mut self, row: &[u8]) {
        self.release();
        self.row.clear();
        self.row.extend_from_slice(row);
    }

    /// Discards the cells. Their memory is released, except for a little that the next row
    /// can use.
    pub fn release(&mut self) {
        self.chunks.truncate(1);
        match self.chunks.first_mut() {
            Some(first) if first.capacity() <= CHUNK_BYTES => first.clear(),
            _ => self.chunks.clear(),
        }
        self.columns.clear();
        self.columns.shrink_to(CHUNK_BYTES / size_of::<Column>());
        self.cells.clear();
        self.cells.shrink_to(CHUNK_BYTES / size_of::<Cell>());
    }

    /// Keeps a cell of the numbered column, and returns its index.
    pub fn push(&mut self, cell: &CellView<'_>, column: u64, value: &[u8]) -> u32 {
        if self.columns.last().is_none_or(|last| last.number != column) {
            let name = self.keep(cell.family, cell.qualifier);
            self.columns.push(Column { number: column, name, family_len: cell.family.len() });
        }
        let value = self.keep(value, &[]);
        self.cells.push(Cell {
            column: index(self.columns.len() - 1),
            timestamp: cell.timestamp,
            txn: cell.txn,
            value,
        });
        index(self.cells.len() - 1)
    }

    /// Copies two pieces of bytes next to each other.
    fn keep(&mut self, first: &[u8], second: &[u8]) -> Place {
        let len = first.len() + second.len();
        let fits = |chunk: &Vec<u8>| chunk.len() + len <= CHUNK_BYTES;
        if !self.chunks.last().is_some_and(fits) {
            // Small rows fill a part of the first chunk.
            let bytes = if self.chunks.is_empty() { len } else { len.max(CHUNK_BYTES) };
            self.chunks.push(Vec::with_capacity(bytes));
        }
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        let start = chunk.len();
        chunk.extend_from_slice(first);
        chunk.extend_from_slice(second);
        Place { chunk: index(at), start: index(start), len }
    }

    fn bytes(&self, place: Place) -> &[u8] {
        &self.chunks[place.chunk as usize][place.start as usize..][..place.len]
    }

    pub fn get(&self, at: u32) -> CellView<'_> {
        let cell = &self.cells[at as usize];
        let column = &self.columns[cell.column as usize];
        let (family, qualifier) = self.bytes(column.name).split_at(column.family_len);
        CellView {
            row: &self.row,
            family,
            qualifier,
            timestamp: cell.timestamp,
            txn: cell.txn,
            marker: false,
            value: self.bytes(cell.value),
        }
    }

    /// Returns the memory that is held.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// Returns the column number of a kept cell.
    pub fn column(&self, at: u32) -> u64 {
        self.columns[self.cells[at as usize].column as usize].number
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("the size limit of a row is below 4 GiB")
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

    #[test]
    fn a_large_row_is_not_copied_as_it_grows_and_is_released_at_its_end() {
        let mut buffer = RowBuffer::default();
        let cell = |value: &'static [u8]| CellView {
            row: b"r",
            family: b"f",
            qualifier: b"q",
            timestamp: 1,
            txn: Txn::ZERO,
            marker: false,
            value,
        };
        let large: &'static [u8] = vec![7; 4 * CHUNK_BYTES].leak();
        let values = [&b"small"[..], large, b"x", large, b"", &large[..CHUNK_BYTES], b"end"];
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        for _ in 0..2 {
            buffer.begin(b"r");
            for (at, value) in values.iter().enumerate() {
                assert_eq!(buffer.push(&cell(value), 1, value), at as u32);
                assert_eq!(buffer.get(0).value, b"small", "nothing moves");
            }
            assert!((0..values.len()).all(|at| buffer.get(at as u32).value == values[at]));
            let capacity = buffer.capacity();
            assert!((bytes..bytes + 4 * CHUNK_BYTES).contains(&capacity), "{capacity}");
            buffer.release();
            assert!(buffer.capacity() <= CHUNK_BYTES);
        }
    }
}
