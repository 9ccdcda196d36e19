//! Assembles rows from the chunks of a ReadRows response, and rejects sequences
//! that violate the protocol.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::row::{Cell, Row};
use stele_bigtable_proto::v2::read_rows_response::CellChunk;
use stele_bigtable_proto::v2::read_rows_response::cell_chunk::RowStatus;

/// The maximum size of an assembled row in bytes: twice the 256 MiB that the API allows.
const ASSEMBLED_ROW_BYTES_MAX: usize = 512 << 20;

/// The state between two chunks.
#[derive(Debug)]
enum RowState {
    /// The next chunk begins a row.
    Between,
    /// The row has complete cells; the next chunk begins another cell of it.
    InRow(Open),
    /// The next chunk continues the value of the row's last cell.
    InValue(Open, BytesMut),
}

/// A row that is not committed yet.
#[derive(Debug)]
struct Open {
    row: Row,
    bytes: usize,
}

#[derive(Debug)]
pub struct Assembler {
    state: RowState,
    reversed: bool,
    /// The last key reported by a row or a progress message.
    last_key: Option<Bytes>,
}

/// The reason why a sequence of chunks is invalid.
pub type Violation = &'static str;

impl Assembler {
    pub fn new(reversed: bool) -> Assembler {
        Assembler { state: RowState::Between, reversed, last_key: None }
    }

    /// Returns the last key that a retry need not read again.
    pub fn last_key(&self) -> Option<&Bytes> {
        self.last_key.as_ref()
    }

    /// Processes a chunk, and returns the row that it completes.
    pub fn chunk(&mut self, mut chunk: CellChunk) -> Result<Option<Row>, Violation> {
        if chunk.row_status == Some(RowStatus::ResetRow(true)) {
            return self.reset(&chunk).map(|()| None);
        }
        let commits = chunk.row_status == Some(RowStatus::CommitRow(true));
        let unfinished = chunk.value_size > 0;
        if chunk.value_size < 0 {
            return Err("a value has a negative size");
        }
        if commits && unfinished {
            return Err("a row is committed in the middle of a value");
        }
        let (open, value) = match std::mem::replace(&mut self.state, RowState::Between) {
            RowState::Between => (self.begin_row(&mut chunk)?, None),
            RowState::InRow(open) => (begin_cell(open, &mut chunk)?, None),
            RowState::InValue(open, value) => (continue_value(open, &chunk)?, Some(value)),
        };
        self.take_value(open, value, chunk.value, unfinished)?;
        if commits { self.commit().map(Some) } else { Ok(None) }
    }

    /// Processes a message that reports how far the server has scanned.
    pub fn scanned(&mut self, key: Bytes) -> Result<(), Violation> {
        if !matches!(self.state, RowState::Between) {
            return Err("progress is reported in the middle of a row");
        }
        if self.last_key.as_ref() != Some(&key) {
            self.check_order(&key)?;
            self.last_key = Some(key);
        }
        Ok(())
    }

    /// Ends the stream: no row may be left open.
    pub fn end(&self) -> Result<(), Violation> {
        match self.state {
            RowState::Between => Ok(()),
            _ => Err("the stream ends in the middle of a row"),
        }
    }

    /// Discards an incomplete row before another attempt.
    pub fn restart(&mut self) {
        self.state = RowState::Between;
    }

    fn reset(&mut self, chunk: &CellChunk) -> Result<(), Violation> {
        if matches!(self.state, RowState::Between) {
            return Err("a row is reset before it began");
        }
        let bare = chunk.row_key.is_empty() && is_piece(chunk);
        if !bare || !chunk.value.is_empty() || chunk.value_size != 0 {
            return Err("a reset carries data");
        }
        self.state = RowState::Between;
        Ok(())
    }

    fn begin_row(&self, chunk: &mut CellChunk) -> Result<Open, Violation> {
        if chunk.row_key.is_empty() {
            return Err("a row begins without a key");
        }
        self.check_order(&chunk.row_key)?;
        let (Some(family), Some(qualifier)) = (chunk.family_name.take(), chunk.qualifier.take())
        else {
            return Err("a row begins without family and qualifier");
        };
        let cell = new_cell(family.into(), qualifier.into(), chunk);
        let row = Row { key: std::mem::take(&mut chunk.row_key), cells: vec![cell] };
        Ok(Open { bytes: row.key.len(), row })
    }

    fn check_order(&self, key: &Bytes) -> Result<(), Violation> {
        let beyond = |last: &Bytes| if self.reversed { key < last } else { key > last };
        if self.last_key.as_ref().is_none_or(beyond) {
            Ok(())
        } else {
            Err("rows are repeated or out of order")
        }
    }

    /// Sets the value of the row's last cell, or appends a piece of it. The total
    /// size that the pieces announce is only a hint.
    fn take_value(
        &mut self,
        mut open: Open,
        value: Option<BytesMut>,
        piece: Bytes,
        unfinished: bool,
    ) -> Result<(), Violation> {
        open.bytes += piece.len() + size_of::<Cell>();
        if open.bytes > ASSEMBLED_ROW_BYTES_MAX {
            return Err("a row exceeds 512 MiB");
        }
        let whole = match value {
            None if unfinished => Err(BytesMut::from(&piece[..])),
            None => Ok(piece),
            Some(mut value) => {
                value.extend_from_slice(&piece);
                if unfinished { Err(value) } else { Ok(value.freeze()) }
            }
        };
        self.state = match whole {
            Ok(value) => {
                let cell = open.row.cells.last_mut();
                cell.expect("an open row has a cell from its first chunk on").value = value;
                RowState::InRow(open)
            }
            Err(value) => RowState::InValue(open, value),
        };
        Ok(())
    }

    fn commit(&mut self) -> Result<Row, Violation> {
        match std::mem::replace(&mut self.state, RowState::Between) {
            RowState::InRow(open) => {
                self.last_key = Some(open.row.key.clone());
                Ok(open.row)
            }
            _ => Err("a row is committed in the middle of a value"),
        }
    }
}

/// Begins another cell; fields that the chunk omits are as in the previous cell.
fn begin_cell(mut open: Open, chunk: &mut CellChunk) -> Result<Open, Violation> {
    if !chunk.row_key.is_empty() && chunk.row_key != open.row.key {
        return Err("a row begins before the last one was committed");
    }
    let before = open.row.cells.last().expect("an open row has a cell from its first chunk on");
    let family = match &chunk.family_name {
        Some(_) if chunk.qualifier.is_none() => return Err("a family begins without a qualifier"),
        Some(family) if **family != *before.family => Arc::from(family.as_str()),
        _ => before.family.clone(),
    };
    let qualifier = match chunk.qualifier.take() {
        Some(qualifier) => qualifier.into(),
        None => before.qualifier.clone(),
    };
    open.row.cells.push(new_cell(family, qualifier, chunk));
    Ok(open)
}

fn continue_value(open: Open, chunk: &CellChunk) -> Result<Open, Violation> {
    if !chunk.row_key.is_empty() || !is_piece(chunk) {
        return Err("a cell begins in the middle of a value");
    }
    Ok(open)
}

/// Returns whether the chunk does not name a cell of its own.
fn is_piece(chunk: &CellChunk) -> bool {
    chunk.family_name.is_none()
        && chunk.qualifier.is_none()
        && chunk.timestamp_micros == 0
        && chunk.labels.is_empty()
}

fn new_cell(family: Arc<str>, qualifier: Bytes, chunk: &mut CellChunk) -> Cell {
    Cell {
        family,
        qualifier,
        timestamp_micros: chunk.timestamp_micros,
        value: Bytes::new(),
        labels: std::mem::take(&mut chunk.labels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a chunk in compact notation: `key fam:qual@ts=value`, then flags.
    /// An omitted part is unset; `~N` is a value size.
    fn chunk(text: &str) -> CellChunk {
        let mut chunk = CellChunk::default();
        for part in text.split_whitespace() {
            match part.split_at(1) {
                ("k", key) => chunk.row_key = key.to_string().into(),
                ("f", family) => chunk.family_name = Some(family.to_string()),
                ("q", qualifier) => chunk.qualifier = Some(qualifier.to_string().into()),
                ("@", at) => chunk.timestamp_micros = at.parse().unwrap(),
                ("=", value) => chunk.value = value.to_string().into(),
                ("~", size) => chunk.value_size = size.parse().unwrap(),
                ("l", label) => chunk.labels.push(label.into()),
                ("!", "") => chunk.row_status = Some(RowStatus::CommitRow(true)),
                ("?", "") => chunk.row_status = Some(RowStatus::CommitRow(false)),
                ("^", "") => chunk.row_status = Some(RowStatus::ResetRow(true)),
                other => panic!("{other:?}"),
            }
        }
        chunk
    }

    fn run(reversed: bool, chunks: &str) -> Result<String, Violation> {
        let mut assembler = Assembler::new(reversed);
        let mut rows = String::new();
        for text in chunks.split(';') {
            if let Some(key) = text.trim().strip_prefix('>') {
                assembler.scanned(key.to_string().into())?;
                continue;
            }
            let Some(row) = assembler.chunk(chunk(text))? else { continue };
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            rows += &format!("[{}", text(&row.key));
            for cell in &row.cells {
                let (qualifier, value) = (text(&cell.qualifier), text(&cell.value));
                rows += &format!(" {}:{qualifier}@{}={value}", cell.family, cell.timestamp_micros);
                rows += &cell.labels.iter().map(|label| format!("#{label}")).collect::<String>();
            }
            rows.push(']');
        }
        assembler.end()?;
        Ok(rows)
    }

    #[test]
    fn every_legal_sequence_of_chunks_yields_its_rows() {
        for (chunks, rows) in [
            ("ka ff qq @5 =v !", "[a f:q@5=v]"),
            ("ka ff qq =v !", "[a f:q@0=v]"),
            ("ka ff qq @2 =b ; @1 =a !", "[a f:q@2=b f:q@1=a]"),
            ("ka ff qq @2 =b ; ka ff qq @1 =a !", "[a f:q@2=b f:q@1=a]"),
            ("ka ff qp @1 =a ; qq @1 =b !", "[a f:p@1=a f:q@1=b]"),
            ("ka ff qq @1 =a ; fg qq @1 =b !", "[a f:q@1=a g:q@1=b]"),
            ("ka ff qq @1 =a ; q @1 =b !", "[a f:q@1=a f:@1=b]"),
            ("ka ff qq @1 la lb =v !", "[a f:q@1=v#a#b]"),
            // A bare commit begins an empty cell, or ends a value.
            ("ka ff qq @1 =v ? ; !", "[a f:q@1=v f:q@0=]"),
            ("ka ff qq @1 =v ~9 ; !", "[a f:q@1=v]"),
            // Values in pieces, including empty ones; sizes are hints.
            ("ka ff qq @1 =v ~5 ; =al ~5 ; =ue !", "[a f:q@1=value]"),
            ("ka ff qq @1 l1 =v ~10 ; ~10 ; =ue !", "[a f:q@1=vue#1]"),
            ("ka ff qq @1 =v ~2 ; =w ; @3 =x ~2 ; =y !", "[a f:q@1=vw f:q@3=xy]"),
            ("ka ff qq ~3 ; =abc !", "[a f:q@0=abc]"),
            // Resets discard what was not committed.
            ("ka ff qq @1 =v ; ^", ""),
            ("ka ff qq @1 =v ; ^ ; ka ff qq @1 =w !", "[a f:q@1=w]"),
            ("ka ff qq @1 =v ~9 ; =x ~9 ; ^ ; kb ff qq =w !", "[b f:q@0=w]"),
            ("ka ff qq =v ; ^ ; ka ff qq =w ; ^ ; ka fg qq =x !", "[a g:q@0=x]"),
            // Many rows, and progress between them.
            ("ka ff qq =v ! ; kb ff qq =w !", "[a f:q@0=v][b f:q@0=w]"),
            (">a ; kb ff qq =v ! ; >b ; >b ; >c ; >d ; ke ff qq =w !", "[b f:q@0=v][e f:q@0=w]"),
        ] {
            assert_eq!(run(false, chunks).as_deref(), Ok(rows), "{chunks}");
        }
        assert_eq!(
            run(true, "kb ff qq =v ! ; >aa ; ka ff qq =w !").as_deref(),
            Ok("[b f:q@0=v][a f:q@0=w]")
        );
    }

    #[test]
    fn every_illegal_sequence_of_chunks_is_rejected() {
        for chunks in [
            // Beginnings that omit something.
            "ff qq =v !",
            "ka qq =v !",
            "ka ff =v !",
            "!",
            "@1 =v",
            "ka ff qq =v ! ; @1 =w !",
            "ka ff qq =v ! ; ff qq =w !",
            "ka ff qq =v ; fg @1 =w !",
            // Rows that are unfinished, repeated, or out of order.
            "ka ff qq =v",
            "ka ff qq =v ~2",
            "ka ff qq =v ! ; kb ff qq =w",
            "ka ff qq =v ; kb ff qq =w !",
            "ka ff qq =v ! ; ka ff qq =w !",
            "kb ff qq =v ! ; ka ff qq =w !",
            ">b ; kb ff qq =v !",
            ">b ; >a",
            "ka ff qq =v ; >b ; @1 =w !",
            // Values in pieces.
            "ka ff qq =v ~2 !",
            "ka ff qq =v ~-1",
            "ka ff qq =v ~2 ; qr =w !",
            "ka ff qq =v ~2 ; ff qq =w !",
            "ka ff qq =v ~2 ; @1 =w !",
            "ka ff qq =v ~2 ; l1 =w !",
            "ka ff qq =v ~2 ; ka =w !",
            "ka ff qq =v ~2 ; kb ff qq =w !",
            // Resets.
            "^",
            "ka ff qq =v ! ; ^",
            "ka ff qq =v ; ^ ; ^",
            "ka ff qq =v ; ^ ka",
            "ka ff qq =v ; ^ =w",
            "ka ff qq =v ; ^ ff",
            "ka ff qq =v ; ^ qq",
            "ka ff qq =v ; ^ @1",
            "ka ff qq =v ; ^ l1",
            "ka ff qq =v ; ^ ~1",
            "ka ff qq =v ; ^ ; @1 =w !",
        ] {
            assert!(run(false, chunks).is_err(), "{chunks}");
        }
        assert!(run(true, "ka ff qq =v ! ; kb ff qq =w !").is_err());
    }

    #[test]
    fn a_family_is_named_once_for_all_its_cells() {
        let mut assembler = Assembler::new(false);
        assembler.chunk(chunk("ka ff qq =v")).unwrap();
        let row = assembler.chunk(chunk("ff qr =w !")).unwrap().unwrap();
        assert!(Arc::ptr_eq(&row.cells[0].family, &row.cells[1].family));
        assert_eq!(assembler.last_key().unwrap(), "a");
    }
}
