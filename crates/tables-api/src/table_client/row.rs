//! Rows as a scan returns them.

use bytes::Bytes;

/// A row with the cells that the scan selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Bytes,
    /// In order of family, qualifier, and descending timestamp.
    pub cells: Vec<Cell>,
    /// A txn at or below the one at which the row was read. Valid as a `commit_max_txn`.
    pub txn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub family: Bytes,
    pub qualifier: Bytes,
    pub timestamp: i64,
    pub value: Bytes,
}

impl Row {
    /// Returns the newest value of a column.
    pub fn value(&self, family: &str, qualifier: impl AsRef<[u8]>) -> Option<&Bytes> {
        let qualifier = qualifier.as_ref();
        let is_wanted = |cell: &&Cell| cell.family == family && cell.qualifier == qualifier;
        self.cells.iter().find(is_wanted).map(|cell| &cell.value)
    }
}
