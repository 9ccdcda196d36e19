//! Transactions over the rows of a table: rows are read, changes are collected, and both
//! are committed together if none of the rows was changed meanwhile.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;

use super::client::{Table, pause};
use super::commit::RowCommit;
use super::error::{TableError, TableResult};
use super::row::Row;

/// An attempt of a transaction. Clones share it.
#[derive(Clone)]
pub struct Transaction {
    table: Table,
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Default)]
struct Recorded {
    /// The oldest txn at which a row was read.
    read_at: Option<u64>,
    commit: RowCommit,
}

impl Table {
    /// Runs `body` until it commits without a conflict. It may run several times, so it
    /// must have no other side effects. Returns its result and the txn of the commit; 0 if
    /// nothing had to be committed.
    ///
    /// A commit whose answer was lost ends with [`TableError::Unknown`] and is not retried.
    /// A body that writes a row of its own per transaction can be run again: it finds
    /// that row if the commit was applied.
    pub async fn transact<T, F, R>(&self, mut body: F) -> TableResult<(T, u64)>
    where
        F: FnMut(Transaction) -> R,
        R: Future<Output = TableResult<T>>,
    {
        let begun = Instant::now();
        let mut failed = 0;
        loop {
            let transaction = Transaction { table: self.clone(), recorded: Arc::default() };
            let value = body(transaction.clone()).await?;
            match transaction.commit().await {
                Err(TableError::Conflict(_)) if begun.elapsed() < self.client.retry_time() => {
                    pause(failed).await;
                    failed += 1;
                }
                committed => return Ok((value, committed?)),
            }
        }
    }
}

impl Transaction {
    /// Reads a row. The transaction conflicts if the row is changed before the commit,
    /// also if it does not exist.
    pub async fn get(&self, row: impl Into<Bytes>) -> TableResult<Option<Row>> {
        let row = row.into();
        let (found, txn) = self.table.read(&row).await?;
        let mut recorded = self.recorded.lock();
        recorded.read_at = Some(recorded.read_at.map_or(txn, |oldest| oldest.min(txn)));
        recorded.commit.touch(row);
        Ok(found)
    }

    /// Adds changes to the commit.
    pub fn change(&self, change: impl FnOnce(&mut RowCommit)) {
        change(&mut self.recorded.lock().commit);
    }

    async fn commit(self) -> TableResult<u64> {
        let (commit, read_at) = {
            let mut recorded = self.recorded.lock();
            (std::mem::take(&mut recorded.commit), recorded.read_at)
        };
        // One row is read at one txn, so there is nothing to check.
        if !commit.changes_rows() && commit.row_count() <= 1 {
            return Ok(0);
        }
        match read_at {
            Some(txn) => self.table.apply_if(&commit, txn).await,
            None => self.table.apply(&commit).await,
        }
    }
}
