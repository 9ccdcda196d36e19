//! Cells before and after a filter, as the test represents them.

use std::collections::BTreeMap;

/// All cells of a table: row, family and qualifier ascending, then timestamps
/// descending.
pub type Table = BTreeMap<Vec<u8>, Vec<Cell>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub family: String,
    pub qualifier: Vec<u8>,
    pub timestamp: i64,
    pub value: Vec<u8>,
}

/// A cell that passed a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub row: Vec<u8>,
    pub cell: Cell,
    pub label: Option<String>,
}

impl Seen {
    fn same_place(&self, other: &Seen) -> bool {
        self.row == other.row
            && self.cell.family == other.cell.family
            && self.cell.qualifier == other.cell.qualifier
            && self.cell.timestamp == other.cell.timestamp
    }
}

/// Sorts the copies of each cell: the API leaves their order open.
pub fn in_order(mut seen: Vec<Seen>) -> Vec<Seen> {
    for copies in seen.chunk_by_mut(Seen::same_place) {
        copies.sort_by(|a, b| (&a.cell.value, &a.label).cmp(&(&b.cell.value, &b.label)));
    }
    seen
}
