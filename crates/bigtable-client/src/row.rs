//! Rows and cells as returned to readers. Keys and values share the memory of the
//! received messages.

use std::sync::Arc;

use bytes::Bytes;

use stele_bigtable_proto::v2;

/// One version of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub family: Arc<str>,
    pub qualifier: Bytes,
    pub timestamp_micros: i64,
    pub value: Bytes,
    pub labels: Vec<String>,
}

impl Cell {
    /// Returns the value as the 64-bit number used by increments and sums.
    pub fn number(&self) -> Option<i64> {
        Some(i64::from_be_bytes(self.value.as_ref().try_into().ok()?))
    }
}

/// The cells of a row in the order in which they were sent: each family
/// contiguous, qualifiers ascending, newest version first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Bytes,
    pub cells: Vec<Cell>,
}

impl Row {
    /// Returns all versions of one column, newest first.
    pub fn column<'a>(
        &'a self,
        family: &'a str,
        qualifier: &'a [u8],
    ) -> impl Iterator<Item = &'a Cell> {
        self.family(family).filter(move |cell| cell.qualifier == qualifier)
    }

    /// Returns all cells of one family.
    pub fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| &*cell.family == family)
    }

    /// Returns the newest cell of one column.
    pub fn latest(&self, family: &str, qualifier: &[u8]) -> Option<&Cell> {
        self.cells.iter().find(|cell| &*cell.family == family && cell.qualifier == qualifier)
    }

    /// Returns the newest value of one column.
    pub fn value(&self, family: &str, qualifier: &[u8]) -> Option<&Bytes> {
        self.latest(family, qualifier).map(|cell| &cell.value)
    }

    pub(crate) fn from_message(row: v2::Row) -> Row {
        let mut cells = Vec::new();
        for family in row.families {
            let name: Arc<str> = family.name.into();
            for column in family.columns {
                cells.extend(column.cells.into_iter().map(|cell| Cell {
                    family: name.clone(),
                    qualifier: column.qualifier.clone(),
                    timestamp_micros: cell.timestamp_micros,
                    value: cell.value,
                    labels: cell.labels,
                }));
            }
        }
        Row { key: row.key, cells }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(family: &str, qualifier: &'static str, timestamp: i64, value: &'static [u8]) -> Cell {
        Cell {
            family: family.into(),
            qualifier: qualifier.into(),
            timestamp_micros: timestamp,
            value: value.into(),
            labels: vec![],
        }
    }

    #[test]
    fn the_newest_cell_of_a_column_is_found_first() {
        let row = Row {
            key: "k".into(),
            cells: vec![
                cell("f", "a", 2, b"new"),
                cell("f", "a", 1, b"old"),
                cell("g", "a", 9, &[0, 0, 0, 0, 0, 0, 1, 0]),
            ],
        };
        assert_eq!(row.value("f", b"a").unwrap(), "new");
        assert_eq!(row.column("f", b"a").count(), 2);
        assert_eq!(row.family("g").count(), 1);
        assert_eq!(row.latest("g", b"a").unwrap().number(), Some(256));
        assert_eq!(row.latest("f", b"a").unwrap().number(), None);
        assert_eq!(row.value("f", b"b"), None);
    }
}
