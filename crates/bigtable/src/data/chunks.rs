//! Encodes cells as the chunks of `ReadRowsResponse` messages, directly into the
//! bytes that go to the wire.
//!
//! Messages end between rows: Google's Go client fails when a message ends inside
//! a row. Only a row that by itself exceeds [`WHOLE_ROW_BYTES_MAX`] is spread
//! over several messages. The last chunk of a row carries its commit flag, and
//! only the next row or the end of the scan reveals which chunk is the last, so
//! the newest chunk of an open row is never sent.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};
use stele_grpc::frame::{self, PREFIX_BYTES};

use super::chunk_fields::{
    COMMIT, FIELD_1, HEADER_BYTES, Header, field_len, put_field, put_value, put_wrapper, tag,
    value_len, wrapper_len,
};

/// A message is complete when it has this size at the end of a row. Larger
/// messages are evicted from the CPU cache before they are sent.
pub const MESSAGE_BYTES: usize = 256 << 10;
/// The encoded size up to which a row is sent in one message. Together with the
/// preceding rows in the message it stays below 4 MiB, the default limit of gRPC
/// clients for received messages.
pub const WHOLE_ROW_BYTES_MAX: usize = 7 << 19;
/// A longer value is sent in pieces. Also the size of the messages that a larger
/// row is spread over.
const PIECE_BYTES: usize = 1 << 20;

/// A cell to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    pub label: Option<&'a str>,
    pub value: &'a [u8],
}

/// An encoder that collects chunks into messages.
#[derive(Default)]
pub struct Chunks {
    /// Complete framed messages that precede the one being written.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// The message being written, after space for its prefix.
    message: BytesMut,
    /// The start of the open row in `message`.
    row_start: usize,
    /// Whether the open row is too large for one message.
    spread: bool,
    row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    /// The newest chunk of the open row, in `message`.
    newest: Option<Chunk>,
    rows: u64,
    cells: u64,
}

/// The position of a chunk in the message.
#[derive(Clone, Copy)]
struct Chunk {
    /// The offset of its tag.
    start: usize,
    /// The offset of its first field.
    body: usize,
}

impl Chunks {
    /// Adds a cell. Cells arrive in row order; a new row closes the previous one.
    pub fn cell(&mut self, cell: &Cell<'_>) {
        let same_row = self.is_in_row(cell.row);
        if !same_row {
            self.end_row();
            self.begin_row(cell.row);
        }
        if cell.value.len() > WHOLE_ROW_BYTES_MAX {
            self.spread = true;
        }
        let same_family = same_row && self.family == cell.family;
        let same_column = same_family && self.qualifier == cell.qualifier;
        self.cells += 1;

        let (first, rest) = cell.value.split_at(cell.value.len().min(PIECE_BYTES));
        let mut head = 0;
        if !same_row {
            head += field_len(cell.row.len());
        }
        if !same_family {
            head += wrapper_len(cell.family.len());
        }
        if !same_column {
            head += wrapper_len(cell.qualifier.len());
        }
        if cell.timestamp != 0 {
            head += 1 + encoded_len_varint(cell.timestamp as u64);
        }
        if let Some(label) = cell.label {
            head += field_len(label.len());
        }
        let total = if rest.is_empty() { 0 } else { cell.value.len() };
        self.begin_chunk(head + value_len(first.len(), total));
        let out = &mut self.message;
        if !same_row {
            put_field(out, tag::ROW_KEY, cell.row);
        }
        if !same_family {
            put_wrapper(out, tag::FAMILY, cell.family);
        }
        if !same_column {
            put_wrapper(out, tag::QUALIFIER, cell.qualifier);
        }
        if cell.timestamp != 0 {
            Header::tag(tag::TIMESTAMP).varint(cell.timestamp as u64).put(out);
        }
        if let Some(label) = cell.label {
            put_field(out, tag::LABEL, label.as_bytes());
        }
        put_value(out, first, total);
        if !rest.is_empty() {
            self.pieces(rest, total);
        }
        if !same_family {
            self.family.clear();
            self.family.extend_from_slice(cell.family);
        }
        if !same_column {
            self.qualifier.clear();
            self.qualifier.extend_from_slice(cell.qualifier);
        }
    }

    fn begin_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        if self.message.len() >= MESSAGE_BYTES {
            self.finish_message(self.message.len());
        }
        self.row_start = self.message.len().max(PREFIX_BYTES);
        self.spread = false;
    }

    /// Adds the remainder of a long value.
    fn pieces(&mut self, mut rest: &[u8], total: usize) {
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(rest.len().min(PIECE_BYTES));
            rest = left;
            let total = if rest.is_empty() { 0 } else { total };
            self.begin_chunk(value_len(piece.len(), total));
            put_value(&mut self.message, piece, total);
        }
    }

    /// Starts a chunk of the open row.
    fn begin_chunk(&mut self, len: usize) {
        let row_bytes = self.message.len().saturating_sub(self.row_start);
        self.spread = self.spread || row_bytes + len > WHOLE_ROW_BYTES_MAX;
        if self.spread && self.message.len() + len > PIECE_BYTES {
            // This chunk follows, so the newest one is not the last of its row.
            self.newest = None;
            self.finish_message(self.message.len());
            self.row_start = PREFIX_BYTES;
        }
        if self.message.is_empty() {
            self.message.put_bytes(0, PREFIX_BYTES);
        }
        let start = self.message.len();
        self.message.reserve(len + 2 * HEADER_BYTES);
        Header::tag(FIELD_1).varint(len as u64).put(&mut self.message);
        self.newest = Some(Chunk { start, body: self.message.len() });
    }

    /// Closes the open row, if it has any cells.
    pub fn end_row(&mut self) {
        let Some(chunk) = self.newest.take() else { return };
        self.message.put_slice(&COMMIT);
        let old_len = self.message.len() - COMMIT.len() - chunk.body;
        let (width, new_width) =
            (encoded_len_varint(old_len as u64), encoded_len_varint((old_len + 2) as u64));
        if new_width > width {
            // The length prefix grew by a byte: shift everything up by one.
            self.message.put_u8(0);
            let end = self.message.len() - 1;
            self.message.copy_within(chunk.body..end, chunk.body + 1);
        }
        let mut length = &mut self.message[chunk.start + 1..chunk.start + 1 + new_width];
        encode_varint((old_len + COMMIT.len()) as u64, &mut length);
        self.rows += 1;
    }

    /// Returns the number of buffered bytes; slightly more than can be taken.
    pub fn len(&self) -> usize {
        self.ready_bytes + self.message.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a cell of `row` continues the open row.
    pub fn is_in_row(&self, row: &[u8]) -> bool {
        self.newest.is_some() && self.row == row
    }

    /// Returns the numbers of closed rows and added cells.
    pub fn counts(&self) -> (u64, u64) {
        (self.rows, self.cells)
    }

    /// Adds an encoded message without chunks. No row may be open.
    pub fn message(&mut self, encoded: &[u8]) {
        assert!(self.newest.is_none(), "a message must not split a row");
        self.finish_message(self.message.len());
        self.message.clear();
        self.message.put_bytes(0, PREFIX_BYTES);
        self.message.put_slice(encoded);
        self.finish_message(self.message.len());
    }

    /// Discards the unsent part of the open row.
    pub fn abandon_row(&mut self) {
        if self.newest.take().is_some() {
            self.message.truncate(self.row_start);
        }
    }

    /// Returns whether a complete message is ready to be taken.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next framed message; `None` if only an open row that must not
    /// be split is left, or the newest chunk of one.
    pub fn take(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.finish_message(match self.newest {
                None => self.message.len(),
                Some(chunk) if self.spread => chunk.start,
                Some(_) => self.row_start,
            });
        }
        let message = self.ready.pop_front()?;
        self.ready_bytes -= message.len();
        Some(message)
    }

    /// Completes a message with everything before `end`, and moves the rest to
    /// the next one.
    fn finish_message(&mut self, end: usize) {
        if end <= PREFIX_BYTES {
            return;
        }
        let mut message = self.message.split_to(end);
        frame::seal(&mut message);
        if let Some(chunk) = &mut self.newest {
            let open = std::mem::take(&mut self.message);
            self.message.reserve(PREFIX_BYTES + open.len() + MESSAGE_BYTES);
            self.message.put_bytes(0, PREFIX_BYTES);
            self.message.put_slice(&open);
            chunk.body = chunk.body - end + PREFIX_BYTES;
            chunk.start = chunk.start - end + PREFIX_BYTES;
            self.row_start = PREFIX_BYTES;
        }
        self.ready_bytes += message.len();
        self.ready.push_back(message.freeze());
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::proto::v2::ReadRowsResponse;
    use crate::proto::v2::read_rows_response::CellChunk;
    use crate::proto::v2::read_rows_response::cell_chunk::RowStatus;
    use prost::Message;

    fn cell<'a>(
        row: &'a str,
        column: (&'a str, &'a str),
        timestamp: i64,
        value: &'a [u8],
    ) -> Cell<'a> {
        let (family, qualifier) = (column.0.as_bytes(), column.1.as_bytes());
        Cell { row: row.as_bytes(), family, qualifier, timestamp, label: None, value }
    }

    fn decode(message: &Bytes) -> Vec<CellChunk> {
        let length = u32::from_be_bytes(message[1..5].try_into().unwrap()) as usize;
        assert_eq!((message[0], length), (0, message.len() - PREFIX_BYTES));
        ReadRowsResponse::decode(message.slice(PREFIX_BYTES..)).unwrap().chunks
    }

    fn drain(chunks: &mut Chunks) -> Vec<CellChunk> {
        std::iter::from_fn(|| chunks.take()).flat_map(|message| decode(&message)).collect()
    }

    fn written(cells: &[Cell<'_>]) -> Vec<CellChunk> {
        let mut chunks = Chunks::default();
        cells.iter().for_each(|cell| chunks.cell(cell));
        chunks.end_row();
        drain(&mut chunks)
    }

    /// Returns a chunk with a value and all other fields unset.
    fn chunk(value: &[u8]) -> CellChunk {
        CellChunk { value: value.to_vec().into(), ..Default::default() }
    }

    const COMMIT_ROW: Option<RowStatus> = Some(RowStatus::CommitRow(true));

    #[test]
    fn one_cell_is_one_committed_chunk() {
        let sent = written(&[cell("r", ("f", "q"), 7, b"v")]);
        let expected = CellChunk {
            row_key: "r".into(),
            family_name: Some("f".into()),
            qualifier: Some(b"q".to_vec()),
            timestamp_micros: 7,
            row_status: COMMIT_ROW,
            ..chunk(b"v")
        };
        assert_eq!(sent, [expected]);
    }

    #[test]
    fn what_is_unchanged_is_left_out() {
        let sent = written(&[
            cell("r", ("f", "q"), 2, b"2"),
            cell("r", ("f", "q"), 1, b"1"),
            cell("r", ("f", ""), 1, b""),
            cell("r", ("g", ""), 0, b"x"),
            cell("s", ("g", ""), 0, b"y"),
        ]);
        assert_eq!(sent.len(), 5);
        assert_eq!(sent[1], CellChunk { timestamp_micros: 1, ..chunk(b"1") });
        let empty = Some(Vec::new());
        assert_eq!(sent[2].family_name, None);
        assert_eq!(sent[2].qualifier, empty, "an empty qualifier is present");
        assert_eq!(sent[3].family_name.as_deref(), Some("g"));
        assert_eq!(sent[3].qualifier, empty, "a family brings its qualifier");
        assert_eq!(sent[3].row_status, COMMIT_ROW);
        assert_eq!(sent[4].row_key, "s");
        assert_eq!(sent[4].family_name.as_deref(), Some("g"));
        let commits = sent.iter().filter(|chunk| chunk.row_status.is_some()).count();
        assert_eq!(commits, 2);
    }

    #[test]
    fn long_values_come_in_pieces_of_which_the_last_commits() {
        for (mib_halves, messages_expected) in [(5, 1), (9, 5)] {
            let value: Vec<u8> = (0..mib_halves * PIECE_BYTES / 2).map(|i| i as u8).collect();
            let mut chunks = Chunks::default();
            chunks.cell(&cell("r", ("f", "q"), 9, &value));
            chunks.end_row();
            let messages: Vec<Bytes> = std::iter::from_fn(|| chunks.take()).collect();
            assert_eq!(messages.len(), messages_expected);
            let sent: Vec<CellChunk> = messages.iter().flat_map(decode).collect();
            let (last, pieces) = sent.split_last().unwrap();
            assert_eq!(sent.len(), value.len().div_ceil(PIECE_BYTES));
            assert!(pieces.iter().all(|piece| piece.value_size == value.len() as i32));
            assert!(pieces.iter().all(|piece| piece.row_status.is_none()));
            assert!(pieces[1..].iter().all(|piece| piece.timestamp_micros == 0));
            assert_eq!((last.value_size, last.row_status), (0, COMMIT_ROW));
            let joined: Vec<u8> = sent.iter().flat_map(|chunk| chunk.value.to_vec()).collect();
            assert_eq!(joined, value);
        }
    }

    #[test]
    fn an_open_row_stays_behind() {
        let mut chunks = Chunks::default();
        chunks.cell(&cell("q", ("f", "a"), 1, b"0"));
        chunks.cell(&cell("r", ("f", "a"), 1, b"1"));
        chunks.cell(&cell("r", ("f", "b"), 1, b"2"));
        let first = decode(&chunks.take().unwrap());
        assert_eq!((first.len(), first[0].row_status), (1, COMMIT_ROW));
        assert_eq!(chunks.take(), None);
        chunks.cell(&cell("r", ("f", "c"), 1, b"3"));
        assert_eq!(chunks.take(), None);
        chunks.end_row();
        let second = decode(&chunks.take().unwrap());
        let values: Vec<&[u8]> = second.iter().map(|chunk| &*chunk.value).collect();
        assert_eq!(values, [b"1", b"2", b"3"]);
        assert_eq!(second[2].row_status, COMMIT_ROW);
        assert_eq!(chunks.counts(), (2, 4));
    }

    #[test]
    fn an_abandoned_row_leaves_the_rows_before_it() {
        let mut chunks = Chunks::default();
        chunks.cell(&cell("q", ("f", "a"), 1, b"0"));
        chunks.cell(&cell("r", ("f", "a"), 1, b"1"));
        chunks.cell(&cell("r", ("f", "b"), 1, b"2"));
        chunks.abandon_row();
        let kept = drain(&mut chunks);
        assert_eq!((kept.len(), kept[0].row_status), (1, COMMIT_ROW));
        assert_eq!(chunks.take(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whenever messages are taken, they end between rows, unless the row is
        /// too large for one message; and the client's limit is respected.
        #[test]
        fn messages_end_between_rows(
            rows in vec((1usize..40, prop_oneof![0usize..2000, 0usize..150_000]), 1..8),
            large in vec((0usize..3_000_000, any::<bool>()), 0..3),
            taken in vec(any::<bool>(), 16),
        ) {
            let large = large.iter().map(|&(bytes, two)| (1 + usize::from(two), 1_000_000 + bytes));
            let mut taken = taken.iter().cycle();
            let mut messages = Vec::new();
            let mut chunks = Chunks::default();
            let value = vec![b'v'; 4_000_000];
            let sizes: Vec<(usize, usize)> = rows.into_iter().chain(large).collect();
            for (at, &(cells, bytes)) in sizes.iter().enumerate() {
                let row = format!("r{at:02}");
                for timestamp in 0..cells as i64 {
                    chunks.cell(&cell(&row, ("f", "q"), timestamp, &value[..bytes]));
                    if *taken.next().unwrap() {
                        messages.extend(chunks.take());
                    }
                }
            }
            chunks.end_row();
            messages.extend(std::iter::from_fn(|| chunks.take()));
            prop_assert!(chunks.is_empty());
            let mut row = 0;
            for message in &messages {
                prop_assert!(message.len() < 4 << 20);
                let sent = decode(message);
                row += sent.iter().filter(|chunk| chunk.row_status.is_some()).count();
                if sent.last().unwrap().row_status.is_none() {
                    let (cells, bytes) = sizes[row];
                    prop_assert!(cells * (bytes + 64) > WHOLE_ROW_BYTES_MAX);
                    prop_assert!(sent.iter().all(|chunk| chunk.value.len() <= PIECE_BYTES));
                }
            }
            prop_assert_eq!(row, sizes.len());
            let sent: usize = messages.iter().flat_map(decode).map(|chunk| chunk.value.len()).sum();
            prop_assert_eq!(sent, sizes.iter().map(|(cells, bytes)| cells * bytes).sum::<usize>());
        }
    }

    #[test]
    fn every_length_of_a_chunk_can_be_committed() {
        for len in (0..400).chain(16_300..16_500) {
            let value = vec![b'v'; len];
            let sent =
                written(&[cell("r", ("f", "q"), 1, &value), cell("s", ("f", "q"), 1, &value)]);
            assert_eq!(sent.len(), 2, "{len}");
            assert!(sent.iter().all(|chunk| chunk.value == value), "{len}");
            assert!(sent.iter().all(|chunk| chunk.row_status == COMMIT_ROW), "{len}");
        }
    }

    #[test]
    fn a_label_stands_on_the_first_piece() {
        let labelled = Cell { label: Some("a"), ..cell("r", ("f", "q"), -5, b"v") };
        let sent = written(&[labelled]);
        assert_eq!(sent[0].labels, ["a"]);
        assert_eq!(sent[0].timestamp_micros, -5);
    }
}
