//! Writes cells as the chunks of `ReadRowsResponse` messages, straight into
//! the bytes that go to the wire.
//!
//! A row's last chunk says that the row is complete, and only the next row or
//! the end of the scan tells which chunk was the last. So the newest chunk of
//! an open row is never sent: it stays behind when a message is taken.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the frame before a gRPC message: a flag and the length.
const FRAME_BYTES: usize = 5;
/// A value longer than this is sent in pieces.
const PIECE_BYTES: usize = 1 << 20;

/// Field tags of `CellChunk`, in wire form.
mod tag {
    pub const ROW_KEY: u8 = 1 << 3 | 2;
    pub const FAMILY: u8 = 2 << 3 | 2;
    pub const QUALIFIER: u8 = 3 << 3 | 2;
    pub const TIMESTAMP: u8 = 4 << 3;
    pub const LABEL: u8 = 5 << 3 | 2;
    pub const VALUE: u8 = 6 << 3 | 2;
    pub const VALUE_SIZE: u8 = 7 << 3;
    pub const COMMIT_ROW: u8 = 9 << 3;
}

/// The only field of a wrapper message, and of a response's chunks.
const FIELD_1: u8 = 1 << 3 | 2;
const COMMIT: [u8; 2] = [tag::COMMIT_ROW, 1];

/// A cell as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    pub label: Option<&'a str>,
    pub value: &'a [u8],
}

/// Collects chunks into messages.
#[derive(Default)]
pub struct Chunks {
    /// Framed messages that are complete, in front of the one being written.
    ready: Vec<Bytes>,
    ready_bytes: usize,
    /// The message being written, after room for its frame.
    message: BytesMut,
    row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    /// The newest chunk of the open row, in `message`.
    newest: Option<Chunk>,
    rows: u64,
    cells: u64,
}

/// Where a chunk lies in the message.
#[derive(Clone, Copy)]
struct Chunk {
    /// Of its tag.
    start: usize,
    /// Of its first field.
    body: usize,
}

impl Chunks {
    /// Adds a cell. Cells come in row order; a new row closes the one before.
    pub fn cell(&mut self, cell: &Cell<'_>) {
        let same_row = self.is_in_row(cell.row);
        if !same_row {
            self.end_row();
            self.row.clear();
            self.row.extend_from_slice(cell.row);
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
            head += 1 + varint_len(cell.timestamp as u64);
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
            out.put_u8(tag::TIMESTAMP);
            put_varint(out, cell.timestamp as u64);
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

    /// The rest of a long value, each piece in a message of its own.
    fn pieces(&mut self, mut rest: &[u8], total: usize) {
        while !rest.is_empty() {
            self.newest = None;
            self.finish_message();
            let (piece, left) = rest.split_at(rest.len().min(PIECE_BYTES));
            rest = left;
            let total = if rest.is_empty() { 0 } else { total };
            self.begin_chunk(value_len(piece.len(), total));
            put_value(&mut self.message, piece, total);
        }
    }

    fn begin_chunk(&mut self, len: usize) {
        if self.message.is_empty() {
            self.message.put_bytes(0, FRAME_BYTES);
        }
        let start = self.message.len();
        self.message.reserve(len + 1 + 5 + COMMIT.len());
        self.message.put_u8(FIELD_1);
        put_varint(&mut self.message, len as u64);
        self.newest = Some(Chunk { start, body: self.message.len() });
    }

    /// Closes the open row, if any cell of it was sent.
    pub fn end_row(&mut self) {
        let Some(chunk) = self.newest.take() else { return };
        self.message.put_slice(&COMMIT);
        let old_len = self.message.len() - COMMIT.len() - chunk.body;
        let (width, new_width) = (varint_len(old_len as u64), varint_len((old_len + 2) as u64));
        if new_width > width {
            // The length has got a byte longer: everything moves up by one.
            self.message.put_u8(0);
            let end = self.message.len() - 1;
            self.message.copy_within(chunk.body..end, chunk.body + 1);
        }
        let mut length = &mut self.message[chunk.start + 1..chunk.start + 1 + new_width];
        let mut value = (old_len + COMMIT.len()) as u64;
        while value >= 0x80 {
            length.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        length.put_u8(value as u8);
        self.rows += 1;
    }

    /// Bytes that wait to be taken; a little more than can be.
    pub fn len(&self) -> usize {
        self.ready_bytes + self.message.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a cell of `row` goes on with the open row.
    pub fn is_in_row(&self, row: &[u8]) -> bool {
        self.newest.is_some() && self.row == row
    }

    /// Rows closed and cells added so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.rows, self.cells)
    }

    /// Adds a message without chunks, encoded. No row may be open.
    pub fn message(&mut self, encoded: &[u8]) {
        assert!(self.newest.is_none(), "a message stands between two rows");
        self.finish_message();
        self.message.clear();
        self.message.put_bytes(0, FRAME_BYTES);
        self.message.put_slice(encoded);
        self.finish_message();
    }

    /// The next framed message; none when all that is left is the newest chunk
    /// of an open row.
    pub fn take(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.finish_message();
        }
        if self.ready.is_empty() {
            return None;
        }
        let message = self.ready.remove(0);
        self.ready_bytes -= message.len();
        Some(message)
    }

    /// Makes everything before the newest chunk a message.
    fn finish_message(&mut self) {
        let end = self.newest.map_or(self.message.len(), |chunk| chunk.start);
        if end <= FRAME_BYTES {
            return;
        }
        let mut message = self.message.split_to(end);
        let length = u32::try_from(message.len() - FRAME_BYTES).expect("messages are small");
        message[1..FRAME_BYTES].copy_from_slice(&length.to_be_bytes());
        if let Some(chunk) = &mut self.newest {
            let held = std::mem::take(&mut self.message);
            self.message.reserve(FRAME_BYTES + held.len());
            self.message.put_bytes(0, FRAME_BYTES);
            self.message.put_slice(&held);
            chunk.body = chunk.body - chunk.start + FRAME_BYTES;
            chunk.start = FRAME_BYTES;
        }
        self.ready_bytes += message.len();
        self.ready.push(message.freeze());
    }
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

fn put_field(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

/// Of a wrapper message; an empty one has no field inside.
fn wrapper_len(len: usize) -> usize {
    field_len(if len == 0 { 0 } else { field_len(len) })
}

fn put_wrapper(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    if bytes.is_empty() {
        out.put_u8(0);
        return;
    }
    put_varint(out, field_len(bytes.len()) as u64);
    put_field(out, FIELD_1, bytes);
}

fn value_len(len: usize, total: usize) -> usize {
    let value = if len == 0 { 0 } else { field_len(len) };
    let size = if total == 0 { 0 } else { 1 + varint_len(total as u64) };
    value + size
}

fn put_value(out: &mut BytesMut, value: &[u8], total: usize) {
    if !value.is_empty() {
        put_field(out, tag::VALUE, value);
    }
    if total != 0 {
        out.put_u8(tag::VALUE_SIZE);
        put_varint(out, total as u64);
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((message[0], length), (0, message.len() - FRAME_BYTES));
        ReadRowsResponse::decode(message.slice(FRAME_BYTES..)).unwrap().chunks
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

    /// A chunk with a value; what is not said is not set.
    fn chunk(value: &[u8]) -> CellChunk {
        CellChunk { value: value.to_vec().into(), ..Default::default() }
    }

    const COMMIT_ROW: Option<RowStatus> = Some(RowStatus::CommitRow(true));

    #[test]
    fn one_cell_is_one_committed_chunk() {
        let told = written(&[cell("r", ("f", "q"), 7, b"v")]);
        let expected = CellChunk {
            row_key: "r".into(),
            family_name: Some("f".into()),
            qualifier: Some(b"q".to_vec()),
            timestamp_micros: 7,
            row_status: COMMIT_ROW,
            ..chunk(b"v")
        };
        assert_eq!(told, [expected]);
    }

    #[test]
    fn what_is_unchanged_is_left_out() {
        let told = written(&[
            cell("r", ("f", "q"), 2, b"2"),
            cell("r", ("f", "q"), 1, b"1"),
            cell("r", ("f", ""), 1, b""),
            cell("r", ("g", ""), 0, b"x"),
            cell("s", ("g", ""), 0, b"y"),
        ]);
        assert_eq!(told.len(), 5);
        assert_eq!(told[1], CellChunk { timestamp_micros: 1, ..chunk(b"1") });
        let empty = Some(Vec::new());
        assert_eq!(told[2].family_name, None);
        assert_eq!(told[2].qualifier, empty, "an empty qualifier is present");
        assert_eq!(told[3].family_name.as_deref(), Some("g"));
        assert_eq!(told[3].qualifier, empty, "a family brings its qualifier");
        assert_eq!(told[3].row_status, COMMIT_ROW);
        assert_eq!(told[4].row_key, "s");
        assert_eq!(told[4].family_name.as_deref(), Some("g"));
        let commits = told.iter().filter(|chunk| chunk.row_status.is_some()).count();
        assert_eq!(commits, 2);
    }

    #[test]
    fn long_values_come_in_pieces_of_which_the_last_commits() {
        let value: Vec<u8> = (0..5 * PIECE_BYTES / 2).map(|i| i as u8).collect();
        let mut chunks = Chunks::default();
        chunks.cell(&cell("r", ("f", "q"), 9, &value));
        chunks.end_row();
        let messages: Vec<Bytes> = std::iter::from_fn(|| chunks.take()).collect();
        assert!(messages.iter().all(|message| message.len() < 2 * PIECE_BYTES));
        let told: Vec<CellChunk> = messages.iter().flat_map(decode).collect();
        assert_eq!(told.len(), 3);
        let sizes: Vec<i32> = told.iter().map(|chunk| chunk.value_size).collect();
        assert_eq!(sizes, [value.len() as i32, value.len() as i32, 0]);
        assert_eq!(told[1].timestamp_micros, 0);
        assert_eq!(told[1].row_status, None);
        assert_eq!(told[2].row_status, COMMIT_ROW);
        let joined: Vec<u8> = told.iter().flat_map(|chunk| chunk.value.to_vec()).collect();
        assert_eq!(joined, value);
    }

    #[test]
    fn the_newest_chunk_of_an_open_row_stays_behind() {
        let mut chunks = Chunks::default();
        chunks.cell(&cell("r", ("f", "a"), 1, b"1"));
        assert_eq!(chunks.take(), None);
        chunks.cell(&cell("r", ("f", "b"), 1, b"2"));
        let first = decode(&chunks.take().unwrap());
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].row_status, None);
        assert_eq!(chunks.take(), None);
        chunks.end_row();
        let second = decode(&chunks.take().unwrap());
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].value, "2");
        assert_eq!(second[0].row_status, COMMIT_ROW);
        assert_eq!(chunks.counts(), (1, 2));
    }

    #[test]
    fn every_length_of_a_chunk_can_be_committed() {
        for len in (0..400).chain(16_300..16_500) {
            let value = vec![b'v'; len];
            let told =
                written(&[cell("r", ("f", "q"), 1, &value), cell("s", ("f", "q"), 1, &value)]);
            assert_eq!(told.len(), 2, "{len}");
            assert!(told.iter().all(|chunk| chunk.value == value), "{len}");
            assert!(told.iter().all(|chunk| chunk.row_status == COMMIT_ROW), "{len}");
        }
    }

    #[test]
    fn a_label_stands_on_the_first_piece() {
        let labelled = Cell { label: Some("a"), ..cell("r", ("f", "q"), -5, b"v") };
        let told = written(&[labelled]);
        assert_eq!(told[0].labels, ["a"]);
        assert_eq!(told[0].timestamp_micros, -5);
    }
}
