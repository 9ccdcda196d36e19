//! The packed form of a commit: the bytes that a caller builds, the store validates and
//! the log stores. `docs/format-commit.md` specifies the format.

mod builder;
mod reader;

use bytes::Bytes;

use super::fold::FoldId;
use super::rows::RowRange;
use crate::error::{Error, Result};
pub use builder::CommitBuilder;
use reader::CommitReader;

/// Values of at least this size are kept in memory as slices of the buffer in which
/// they arrived, instead of being copied.
pub const SHARED_VALUE_BYTES_MIN: usize = 4 << 10;

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

impl<'a> Mutation<'a> {
    /// Returns the family that is changed; `None` if it is the whole row.
    pub fn family(&self) -> Option<&'a [u8]> {
        match self {
            Mutation::Set { family, .. }
            | Mutation::DeleteCells { family, .. }
            | Mutation::DeleteFamily { family }
            | Mutation::Merge { family, .. }
            | Mutation::Mark { family, .. } => Some(family),
            Mutation::DeleteRow => None,
        }
    }
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
        let mut reader = CommitReader::new(&self.bytes);
        let version = reader.u8("a version")?;
        if version != VERSION {
            return Err(reader.malformed(format!("version {version}, expected {VERSION}")));
        }
        let mut last_table = None;
        while !reader.done() {
            let id = TableId(reader.u32("a table id")?);
            if last_table.is_some_and(|last| last >= id) {
                return Err(Error::CellDisorder(format!(
                    "table {} is repeated or out of order",
                    id.0
                )));
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

fn walk_items<'a>(
    items: &mut CommitReader<'a>,
    visitor: &mut impl CommitVisitor<'a>,
) -> Result<()> {
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
                        "row \"{}\" is not above the row before it",
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
        let calls = transcript(&sample()).unwrap();
        assert_eq!(calls.len(), 13);
        assert_eq!(calls[0], "table 1");
        assert_eq!(
            calls[3],
            format!(
                "{:?}",
                Mutation::Set { family: b"f", qualifier: b"", timestamp: -1, value: b"" }
            )
        );
        assert!(calls[12].contains("DeleteCells"));
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
