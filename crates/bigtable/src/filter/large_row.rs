//! Rows that are too large to be read. The evaluator rejects them while it holds
//! a row; readers that stream a row apply the same limit.

use crate::error::Error;

/// The maximum number of bytes read of one row, including copies.
pub const ROW_READ_BYTES_MAX: u64 = 256 << 20;

/// A row that is too large to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeRow {
    pub row: Vec<u8>,
    /// The bytes that had been read when the read was abandoned.
    pub bytes: u64,
}

impl LargeRow {
    /// Returns the error for a reader of `table`.
    pub fn error(&self, table: &str) -> Error {
        let mib = self.bytes.div_ceil(1 << 20);
        let limit = ROW_READ_BYTES_MAX >> 20;
        let row = self.row.escape_ascii();
        let message = format!(
            "Error while reading table '{table}' : Read returned {mib}MiB from row '{row}' which \
             exceeds the limit of {limit}MiB. Read less of the row with a filter, for instance on \
             columns, timestamps or versions."
        );
        Error::LargeRow { message, row: self.row.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_table_row_and_limit() {
        let large = LargeRow { row: b"r\xff".to_vec(), bytes: (256 << 20) + 1 };
        let text = large.error("projects/p/instances/i/tables/t").to_string();
        assert!(text.starts_with(
            "Error while reading table 'projects/p/instances/i/tables/t' : \
             Read returned 257MiB from row 'r\\xff' which exceeds the limit of 256MiB."
        ));
    }
}
