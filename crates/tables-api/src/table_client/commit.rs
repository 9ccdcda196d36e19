//! A commit of several rows, collected in any order and packed in row order.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_engine::{CommitBuilder, FoldId, Mutation, TableId, TimeRange};

/// The changes of a commit. It is applied to all of its rows, or to none.
#[derive(Clone, Debug, Default)]
pub struct RowCommit {
    rows: BTreeMap<Bytes, Vec<Change>>,
}

#[derive(Clone, Debug)]
enum Change {
    Set { family: String, qualifier: Bytes, timestamp: i64, value: Bytes },
    Add { fold: FoldId, family: String, qualifier: Bytes, timestamp: i64, operand: Bytes },
    DeleteCells { family: String, qualifier: Bytes, times: TimeRange },
    DeleteFamily { family: String },
    DeleteRow,
}

impl RowCommit {
    pub fn new() -> RowCommit {
        RowCommit::default()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns whether the commit changes anything, besides touching rows.
    pub fn changes_rows(&self) -> bool {
        self.rows.values().any(|changes| !changes.is_empty())
    }

    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Adds a row without changing it: the commit conflicts if the row was changed, and
    /// others that have read the row conflict with the commit.
    pub fn touch(&mut self, row: impl Into<Bytes>) -> &mut RowCommit {
        self.rows.entry(row.into()).or_default();
        self
    }

    /// Sets a cell. Timestamps are microseconds.
    pub fn set(
        &mut self,
        row: impl Into<Bytes>,
        family: &str,
        qualifier: impl Into<Bytes>,
        timestamp: i64,
        value: impl Into<Bytes>,
    ) -> &mut RowCommit {
        let (qualifier, value) = (qualifier.into(), value.into());
        self.push(row, Change::Set { family: family.into(), qualifier, timestamp, value })
    }

    /// Adds to a cell of a family that sums.
    pub fn add(
        &mut self,
        row: impl Into<Bytes>,
        family: &str,
        qualifier: impl Into<Bytes>,
        timestamp: i64,
        amount: i64,
    ) -> &mut RowCommit {
        let (qualifier, operand) =
            (qualifier.into(), Bytes::copy_from_slice(&amount.to_be_bytes()));
        let (fold, family) = (FoldId::SUM, family.into());
        self.push(row, Change::Add { fold, family, qualifier, timestamp, operand })
    }

    /// Deletes all cells of a column.
    pub fn delete_column(
        &mut self,
        row: impl Into<Bytes>,
        family: &str,
        qualifier: impl Into<Bytes>,
    ) -> &mut RowCommit {
        let (family, qualifier, times) = (family.into(), qualifier.into(), TimeRange::ALL);
        self.push(row, Change::DeleteCells { family, qualifier, times })
    }

    pub fn delete_family(&mut self, row: impl Into<Bytes>, family: &str) -> &mut RowCommit {
        self.push(row, Change::DeleteFamily { family: family.into() })
    }

    pub fn delete_row(&mut self, row: impl Into<Bytes>) -> &mut RowCommit {
        self.push(row, Change::DeleteRow)
    }

    fn push(&mut self, row: impl Into<Bytes>, change: Change) -> &mut RowCommit {
        self.rows.entry(row.into()).or_default().push(change);
        self
    }

    /// Returns the packed form for a table.
    pub fn pack(&self, table: TableId) -> Bytes {
        let mut commit = CommitBuilder::new();
        commit.table(table);
        for (row, changes) in &self.rows {
            commit.row(row);
            for change in changes {
                commit.mutation(change.mutation());
            }
        }
        commit.finish().bytes().clone()
    }
}

impl Change {
    fn mutation(&self) -> Mutation<'_> {
        match self {
            Change::Set { family, qualifier, timestamp, value } => {
                Mutation::Set { family: family.as_bytes(), qualifier, timestamp: *timestamp, value }
            }
            Change::Add { fold, family, qualifier, timestamp, operand } => Mutation::Merge {
                fold: *fold,
                family: family.as_bytes(),
                qualifier,
                timestamp: *timestamp,
                operand,
            },
            Change::DeleteCells { family, qualifier, times } => {
                Mutation::DeleteCells { family: family.as_bytes(), qualifier, times: *times }
            }
            Change::DeleteFamily { family } => Mutation::DeleteFamily { family: family.as_bytes() },
            Change::DeleteRow => Mutation::DeleteRow,
        }
    }
}
