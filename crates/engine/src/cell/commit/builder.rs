//! Builds packed commits.

use bytes::Bytes;

use super::{
    Commit, ITEM_RANGE, ITEM_ROW, Mutation, OP_DELETE_CELLS, OP_DELETE_FAMILY, OP_DELETE_ROW,
    OP_MARK, OP_MERGE, OP_SET, SHARED_VALUE_BYTES_MIN, TableId, TimeRange, VERSION,
};
use crate::cell::fold::FoldId;
use crate::cell::rows::RowRange;
use crate::varint::push_varint;

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
const CAPACITY_BYTES: usize = 256;

impl CommitBuilder {
    pub fn new() -> CommitBuilder {
        CommitBuilder::with_capacity(CAPACITY_BYTES)
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
        let spare = self.bytes.capacity() - self.bytes.len();
        if self.bytes.len() >= SHARED_VALUE_BYTES_MIN && spare > self.bytes.len() / 8 {
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
        let length = u32::try_from(bytes.len()).expect("a string in a commit is under 4 GiB");
        push_varint(&mut self.bytes, length.into());
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
