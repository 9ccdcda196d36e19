//! The packed form of a commit: the bytes that a caller builds, the store validates and
//! the log stores. `docs/format-commit.md` specifies the format.

use bytes::Bytes;

use super::fold::FoldId;
use super::rows::RowRange;
use crate::error::{Error, Result};

/// The id of a table; never reused after the table is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// Timestamps from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeRange {
    pub min: i64,
    pub max: i64,
}

impl TimeRange {
    pub const ALL: TimeRange = TimeRange { min: i64::MIN, max: i64::MAX };

    pub fn contains(&self, timestamp: i64) -> bool {
        (self.min..=self.max).contains(&timestamp)
    }

    pub fn is_empty(&self) -> bool {
        self.max < self.min
    }
}

/// One change to a row, borrowing its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// Writes a value to a cell.
    Set {
        family: &'a [u8],
        qualifier: &'a [u8],
        timestamp: i64,
        value: &'a [u8],
    },
    /// Deletes the cells of a column whose timestamps lie in a range.
    DeleteCells {
        family: &'a [u8],
        qualifier: &'a [u8],
        times: TimeRange,
    },
    DeleteFamily {
        family: &'a [u8],
    },
    DeleteRow,
    /// Folds an operand into a cell.
    Merge {
        fold: FoldId,
        family: &'a [u8],
        qualifier: &'a [u8],
        timestamp: i64,
        operand: &'a [u8],
    },
    /// Writes a marker: an erasure that stays readable as history.
    Mark {
        family: &'a [u8],
        qualifier: &'a [u8],
        timestamp: i64,
        value: &'a [u8],
    },
}

const VERSION: u8 = 1;
const ITEM_RANGE: u8 = 1;
const ITEM_ROW: u8 = 2;
const OP_SET: u8 = 1;
const OP_DELETE_CELLS: u8 = 2;
const OP_DELETE_FAMILY: u8 = 3;
const OP_DELETE_ROW: u8 = 4;
const OP_MERGE: u8 = 5;
const OP_MARK: u8 = 6;

/// A packed commit. The bytes are validated when the store applies them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    bytes: Bytes,
}

impl Commit {
    /// Wraps untrusted bytes; `walk` validates them.
    pub fn from_bytes(bytes: Bytes) -> Commit {
        Commit { bytes }
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Walks the whole commit in order, calling the visitor for each item. Rejects the
    /// commit unless every byte is accounted for.
    pub fn walk<'a>(&'a self, visitor: &mut impl CommitVisitor<'a>) -> Result<()> {
        let mut reader = Reader { bytes: &self.bytes, at: 0, end: self.bytes.len() };
        let version = reader.u8("a version")?;
        if version != VERSION {
            return Err(reader.malformed(format!("version {version}, expected {VERSION}")));
        }
        let mut last_table = None;
        while !reader.done() {
            let id = TableId(reader.u32("a table id")?);
            if last_table.is_some_and(|last| last >= id) {
                return Err(Error::CellDisorder(format!("table {} comes twice or late", id.0)));
            }
            last_table = Some(id);
            let mut items = reader.section("a table")?;
            visitor.table(id)?;
            walk_items(&mut items, visitor)?;
        }
        Ok(())
    }
}

/// Receives the contents of a commit, in order.
pub trait CommitVisitor<'a> {
    fn table(&mut self, table: TableId) -> Result<()>;
    /// Visits a range of rows to delete; called before all rows of its table.
    fn delete_range(&mut self, range: RowRange) -> Result<()>;
    fn row(&mut self, row: &'a [u8]) -> Result<()>;
    fn mutation(&mut self, mutation: Mutation<'a>) -> Result<()>;
    /// Called after the last mutation of a row.
    fn row_end(&mut self) -> Result<()>;
}

fn walk_items<'a>(items: &mut Reader<'a>, visitor: &mut impl CommitVisitor<'a>) -> Result<()> {
    let mut last_row: Option<&[u8]> = None;
    while !items.done() {
        match items.u8("an item")? {
            ITEM_RANGE if last_row.is_none() => visitor.delete_range(items.range()?)?,
            ITEM_RANGE => return Err(items.malformed("a range delete after a row")),
            ITEM_ROW => {
                let mut body = items.section("a row")?;
                let row = body.bytes("a row key")?;
                if last_row.is_some_and(|last| last >= row) {
                    return Err(Error::CellDisorder(format!(
                        "row \"{}\" does not come after the row before it",
                        row.escape_ascii()
                    )));
                }
                last_row = Some(row);
                visitor.row(row)?;
                while !body.done() {
                    let mutation = body.mutation()?;
                    visitor.mutation(mutation)?;
                }
                visitor.row_end()?;
            }
            other => return Err(items.malformed(format!("unknown item {other}"))),
        }
    }
    Ok(())
}

/// Reads a section of the packed bytes with bounds checks.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn done(&self) -> bool {
        self.at == self.end
    }

    fn malformed(&self, what: impl Into<String>) -> Error {
        Error::InvalidPackedFormat { at: self.at, what: what.into() }
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        if count > self.end - self.at {
            return Err(self.malformed(format!("{what} is cut off")));
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(self.take(N, what)?.try_into().expect("take gives what was asked for"))
    }

    fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn i64(&mut self, what: &str) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let length = self.varint(what)?;
        self.take(length, what)
    }

    /// Reads a length of at most 32 bits in base 128, low bits first.
    fn varint(&mut self, what: &str) -> Result<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.u8(what)?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value)
                    .map(|value| value as usize)
                    .map_err(|_| self.malformed(format!("length of {what} is too large")));
            }
        }
        Err(self.malformed(format!("length of {what} does not end")))
    }

    fn section(&mut self, what: &str) -> Result<Reader<'a>> {
        let length = self.u32(what)? as usize;
        let start = self.at;
        self.take(length, what)?;
        Ok(Reader { bytes: self.bytes, at: start, end: self.at })
    }

    fn range(&mut self) -> Result<RowRange> {
        let start = self.bytes("a range start")?.to_vec();
        let end = match self.u8("a range end")? {
            0 => None,
            1 => Some(self.bytes("a range end")?.to_vec()),
            other => return Err(self.malformed(format!("range end is {other}, not 0 or 1"))),
        };
        Ok(RowRange { start, end })
    }

    fn mutation(&mut self) -> Result<Mutation<'a>> {
        Ok(match self.u8("a mutation")? {
            OP_SET => Mutation::Set {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                value: self.bytes("a value")?,
            },
            OP_DELETE_CELLS => Mutation::DeleteCells {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                times: TimeRange { min: self.i64("a time")?, max: self.i64("a time")? },
            },
            OP_DELETE_FAMILY => Mutation::DeleteFamily { family: self.bytes("a family")? },
            OP_DELETE_ROW => Mutation::DeleteRow,
            OP_MERGE => Mutation::Merge {
                fold: FoldId(self.u8("a fold")?),
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                operand: self.bytes("an operand")?,
            },
            OP_MARK => Mutation::Mark {
                family: self.bytes("a family")?,
                qualifier: self.bytes("a qualifier")?,
                timestamp: self.i64("a timestamp")?,
                value: self.bytes("a value")?,
            },
            other => return Err(self.malformed(format!("unknown mutation {other}"))),
        })
    }
}

/// Builds a packed commit in place.
///
/// Tables, and the rows of a table, must be added in ascending order; otherwise the
/// store rejects the commit. Range deletes precede a table's rows and take effect
/// before them.
#[derive(Debug)]
pub struct CommitBuilder {
    bytes: Vec<u8>,
    /// The offset of the open table's length field.
    table_at: Option<usize>,
    /// The offset of the open row's length field.
    row_at: Option<usize>,
}

impl Default for CommitBuilder {
    fn default() -> Self {
        CommitBuilder::new()
    }
}

/// The initial capacity: a commit of one small cell is built without reallocation.
const COMMIT_BYTES_FEW: usize = 256;

impl CommitBuilder {
    pub fn new() -> CommitBuilder {
        CommitBuilder::with_capacity(COMMIT_BYTES_FEW)
    }

    /// Like `new`, with capacity for `capacity` bytes, so that a large commit is built
    /// without reallocation.
    pub fn with_capacity(capacity: usize) -> CommitBuilder {
        let mut bytes = Vec::with_capacity(capacity.max(1));
        bytes.push(VERSION);
        CommitBuilder { bytes, table_at: None, row_at: None }
    }

    /// Returns the size of the packed bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == 1
    }

    /// Begins the changes of a table.
    pub fn table(&mut self, table: TableId) -> &mut Self {
        self.end_table();
        self.bytes.extend_from_slice(&table.0.to_le_bytes());
        self.table_at = Some(self.begin_section());
        self
    }

    /// Deletes all rows of a range.
    pub fn delete_range(&mut self, range: &RowRange) -> &mut Self {
        assert!(self.table_at.is_some(), "a range delete needs a table");
        self.end_row();
        self.bytes.push(ITEM_RANGE);
        self.push_bytes(&range.start);
        match &range.end {
            None => self.bytes.push(0),
            Some(end) => {
                self.bytes.push(1);
                self.push_bytes(end);
            }
        }
        self
    }

    /// Begins the changes of a row.
    pub fn row(&mut self, row: &[u8]) -> &mut Self {
        assert!(self.table_at.is_some(), "a row needs a table");
        self.end_row();
        self.bytes.push(ITEM_ROW);
        self.row_at = Some(self.begin_section());
        self.push_bytes(row);
        self
    }

    pub fn set(
        &mut self,
        family: &[u8],
        qualifier: &[u8],
        timestamp: i64,
        value: &[u8],
    ) -> &mut Self {
        self.mutation(Mutation::Set { family, qualifier, timestamp, value })
    }

    pub fn delete_cells(&mut self, family: &[u8], qualifier: &[u8], times: TimeRange) -> &mut Self {
        self.mutation(Mutation::DeleteCells { family, qualifier, times })
    }

    pub fn delete_column(&mut self, family: &[u8], qualifier: &[u8]) -> &mut Self {
        self.delete_cells(family, qualifier, TimeRange::ALL)
    }

    pub fn delete_family(&mut self, family: &[u8]) -> &mut Self {
        self.mutation(Mutation::DeleteFamily { family })
    }

    pub fn delete_row(&mut self) -> &mut Self {
        self.mutation(Mutation::DeleteRow)
    }

    pub fn merge(
        &mut self,
        fold: FoldId,
        family: &[u8],
        qualifier: &[u8],
        timestamp: i64,
        operand: &[u8],
    ) -> &mut Self {
        self.mutation(Mutation::Merge { fold, family, qualifier, timestamp, operand })
    }

    pub fn mark(
        &mut self,
        family: &[u8],
        qualifier: &[u8],
        timestamp: i64,
        value: &[u8],
    ) -> &mut Self {
        self.mutation(Mutation::Mark { family, qualifier, timestamp, value })
    }

    /// Adds a change to the open row.
    pub fn mutation(&mut self, mutation: Mutation<'_>) -> &mut Self {
        assert!(self.row_at.is_some(), "a mutation needs a row");
        match mutation {
            Mutation::Set { family, qualifier, timestamp, value } => {
                self.bytes.push(OP_SET);
                self.push_cell(family, qualifier, timestamp, value);
            }
            Mutation::Mark { family, qualifier, timestamp, value } => {
                self.bytes.push(OP_MARK);
                self.push_cell(family, qualifier, timestamp, value);
            }
            Mutation::Merge { fold, family, qualifier, timestamp, operand } => {
                self.bytes.extend_from_slice(&[OP_MERGE, fold.0]);
                self.push_cell(family, qualifier, timestamp, operand);
            }
            Mutation::DeleteCells { family, qualifier, times } => {
                self.bytes.push(OP_DELETE_CELLS);
                self.push_bytes(family);
                self.push_bytes(qualifier);
                self.bytes.extend_from_slice(&times.min.to_le_bytes());
                self.bytes.extend_from_slice(&times.max.to_le_bytes());
            }
            Mutation::DeleteFamily { family } => {
                self.bytes.push(OP_DELETE_FAMILY);
                self.push_bytes(family);
            }
            Mutation::DeleteRow => self.bytes.push(OP_DELETE_ROW),
        }
        self
    }

    pub fn finish(mut self) -> Commit {
        self.end_table();
        // Large values share the buffer while they are in memory, so return unused
        // capacity.
        const SHARED_BYTES_MIN: usize = 4 << 10;
        let spare = self.bytes.capacity() - self.bytes.len();
        if self.bytes.len() >= SHARED_BYTES_MIN && spare > self.bytes.len() / 8 {
            self.bytes.shrink_to_fit();
        }
        Commit { bytes: Bytes::from(self.bytes) }
    }

    fn push_cell(&mut self, family: &[u8], qualifier: &[u8], timestamp: i64, value: &[u8]) {
        self.push_bytes(family);
        self.push_bytes(qualifier);
        self.bytes.extend_from_slice(&timestamp.to_le_bytes());
        self.push_bytes(value);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut length = u32::try_from(bytes.len()).expect("a part of a commit is under 4 GiB");
        while length >= 0x80 {
            self.bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.bytes.push(length as u8);
        self.bytes.extend_from_slice(bytes);
    }

    fn begin_section(&mut self) -> usize {
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.len()
    }

    fn end_section(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).expect("a section is under 4 GiB");
        self.bytes[start - 4..start].copy_from_slice(&length.to_le_bytes());
    }

    fn end_row(&mut self) {
        if let Some(start) = self.row_at.take() {
            self.end_section(start);
        }
    }

    fn end_table(&mut self) {
        self.end_row();
        if let Some(start) = self.table_at.take() {
            self.end_section(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records the visitor calls.
    #[derive(Default)]
    struct Transcript(Vec<String>);

    impl<'a> CommitVisitor<'a> for Transcript {
        fn table(&mut self, table: TableId) -> Result<()> {
            self.0.push(format!("table {}", table.0));
            Ok(())
        }
        fn delete_range(&mut self, range: RowRange) -> Result<()> {
            self.0.push(format!("range {range:?}"));
            Ok(())
        }
        fn row(&mut self, row: &'a [u8]) -> Result<()> {
            self.0.push(format!("row {row:?}"));
            Ok(())
        }
        fn mutation(&mut self, mutation: Mutation<'a>) -> Result<()> {
            self.0.push(format!("{mutation:?}"));
            Ok(())
        }
        fn row_end(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn transcript(commit: &Commit) -> Result<Vec<String>> {
        let mut transcript = Transcript::default();
        commit.walk(&mut transcript)?;
        Ok(transcript.0)
    }

    fn sample() -> Commit {
        let mut builder = CommitBuilder::new();
        builder.table(TableId(1)).delete_range(&RowRange::new("a", "b"));
        builder.row(b"").set(b"f", b"", -1, b"").delete_row();
        builder.row(b"r\0").merge(FoldId::SUM, b"f", b"q", 5, &[0; 8]);
        builder.table(TableId(9)).delete_range(&RowRange::from("z"));
        builder.row(b"s").mark(b"f", b"q", 1, b"why").delete_family(b"f");
        builder.delete_column(b"g", &[b'x'; 300]);
        builder.finish()
    }

    #[test]
    fn a_built_commit_reads_back_in_order() {
        let told = transcript(&sample()).unwrap();
        assert_eq!(told.len(), 13);
        assert_eq!(told[0], "table 1");
        assert_eq!(
            told[3],
            format!(
                "{:?}",
                Mutation::Set { family: b"f", qualifier: b"", timestamp: -1, value: b"" }
            )
        );
        assert!(told[12].contains("DeleteCells"));
    }

    #[test]
    fn a_commit_cut_anywhere_is_refused() {
        let whole = sample();
        // A cut between two tables leaves a shorter but valid commit.
        let mut whole_prefixes = 0;
        for end in 0..whole.bytes().len() {
            let cut = Commit::from_bytes(whole.bytes().slice(..end));
            match transcript(&cut) {
                Err(Error::InvalidPackedFormat { at, .. }) => assert!(at <= end),
                Ok(_) => whole_prefixes += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(whole_prefixes, 2, "only the empty commit and the first table stand alone");
    }

    #[test]
    fn rows_and_tables_out_of_order_are_disorder() {
        let mut builder = CommitBuilder::new();
        builder.table(TableId(1)).row(b"b").delete_row().row(b"a").delete_row();
        assert!(matches!(transcript(&builder.finish()), Err(Error::CellDisorder(_))));
        let mut builder = CommitBuilder::new();
        builder.table(TableId(1)).row(b"b").delete_row().row(b"b").delete_row();
        assert!(matches!(transcript(&builder.finish()), Err(Error::CellDisorder(_))));
        let mut builder = CommitBuilder::new();
        builder.table(TableId(2)).table(TableId(1));
        assert!(matches!(transcript(&builder.finish()), Err(Error::CellDisorder(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = transcript(&Commit::from_bytes(bytes.into()));
        }

        #[test]
        fn a_flipped_commit_never_panics(at in 0usize..150, bit in 0u8..8) {
            let mut bytes = sample().bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let _ = transcript(&Commit::from_bytes(bytes.into()));
        }
    }
}
