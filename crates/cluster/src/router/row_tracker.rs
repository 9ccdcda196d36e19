//! Follows which rows a client has received, from the chunks that are sent to it.

use super::wire::{Fields, Malformed};

/// Fields of `ReadRowsResponse`.
const CHUNKS: u32 = 1;
const LAST_SCANNED: u32 = 2;
pub const STATS: u32 = 3;
/// Fields of a chunk.
const ROW_KEY: u32 = 1;
const RESET_ROW: u32 = 8;
const COMMIT_ROW: u32 = 9;

#[derive(Debug, Default)]
pub struct RowTracker {
    /// The row of the newest chunk.
    row: Vec<u8>,
    /// Whether the client has a part of that row.
    is_open: bool,
    /// The last row that the client needs nothing more of.
    complete: Option<Vec<u8>>,
    rows: u64,
}

impl RowTracker {
    /// Follows a message.
    pub fn add(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let mut row: Option<&[u8]> = None;
        let mut complete: Option<&[u8]> = None;
        for field in Fields::of(message) {
            let field = field?;
            match (field.tag, field.bytes()) {
                (CHUNKS, Some(chunk)) => {
                    let (mut commits, mut resets) = (false, false);
                    for field in Fields::of(chunk) {
                        let field = field?;
                        match field.tag {
                            ROW_KEY => row = field.bytes().filter(|key| !key.is_empty()).or(row),
                            COMMIT_ROW => commits = field.varint() == Some(1),
                            RESET_ROW => resets = field.varint() == Some(1),
                            _ => {}
                        }
                    }
                    self.is_open = !commits && !resets;
                    if commits {
                        self.rows += 1;
                        match row {
                            Some(row) => complete = Some(row),
                            None => self.complete = Some(self.row.clone()),
                        }
                    }
                }
                (LAST_SCANNED, Some(key)) if !key.is_empty() => complete = Some(key),
                _ => {}
            }
        }
        if let Some(row) = row {
            self.row = row.to_vec();
        }
        if let Some(complete) = complete {
            self.complete = Some(complete.to_vec());
        }
        Ok(())
    }

    /// Notes that the client drops the row that it has a part of.
    pub fn reset(&mut self) {
        self.is_open = false;
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the last row that was completed since the last call.
    pub fn take_complete(&mut self) -> Option<Vec<u8>> {
        self.complete.take()
    }

    /// Returns the number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use stele_bigtable_proto::v2;
    use stele_bigtable_proto::v2::read_rows_response::CellChunk;
    use stele_bigtable_proto::v2::read_rows_response::cell_chunk::RowStatus;

    use super::*;

    fn chunk(row: &'static str, status: Option<RowStatus>) -> CellChunk {
        CellChunk { row_key: row.into(), row_status: status, ..Default::default() }
    }

    fn message(chunks: Vec<CellChunk>) -> Vec<u8> {
        v2::ReadRowsResponse { chunks, ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn the_last_complete_row_is_known() {
        let commit = || Some(RowStatus::CommitRow(true));
        let mut tracker = RowTracker::default();
        tracker
            .add(&message(vec![chunk("a", None), chunk("", commit()), chunk("b", None)]))
            .unwrap();
        assert_eq!((tracker.is_open(), tracker.rows()), (true, 1));
        assert_eq!(tracker.take_complete(), Some(b"a".to_vec()));
        assert_eq!(tracker.take_complete(), None);
        // The row goes on in the next message.
        tracker.add(&message(vec![chunk("", None)])).unwrap();
        assert!(tracker.is_open());
        tracker.add(&message(vec![chunk("", commit())])).unwrap();
        assert_eq!((tracker.is_open(), tracker.rows()), (false, 2));
        assert_eq!(tracker.take_complete(), Some(b"b".to_vec()));
        tracker.add(&message(vec![chunk("c", None)])).unwrap();
        tracker.add(&message(vec![chunk("", Some(RowStatus::ResetRow(true)))])).unwrap();
        assert!(!tracker.is_open() && tracker.take_complete().is_none());
    }

    #[test]
    fn rows_without_cells_count_as_scanned() {
        let response =
            v2::ReadRowsResponse { last_scanned_row_key: "m".into(), ..Default::default() };
        let mut tracker = RowTracker::default();
        tracker.add(&response.encode_to_vec()).unwrap();
        assert_eq!((tracker.take_complete(), tracker.rows()), (Some(b"m".to_vec()), 0));
        assert!(tracker.add(b"\x0a\x05").is_err());
    }
}
