//! Single writes, and the ranges of transactions, with etcd's rules.

use bytes::Bytes;

use super::run::EntryRun;
use crate::command::{
    Command, Delete, DeleteAnswer, OWNER_BYTES, Op, Put, PutAnswer, ROW_BYTES_MAX, RangeAnswer,
    RangeQuery, Txn, VERSION_OF_LIMITS, within,
};
use crate::error::{Error, Result};
use crate::key::{Kv, Tail};
use crate::state::RangeSummary;

/// The maximum total size of the ranges and previous values that one request
/// returns, and of the values that it keeps.
pub const RESULT_BYTES_MAX: usize = 32 << 20;

/// Checks that the engine accepts the rows of a key to be written. New
/// proposals have been checked against a stricter limit; a log of an older
/// version may hold longer keys, which every member refuses here.
pub fn check_rows(key: &[u8], owned: bool) -> Result<()> {
    if key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let limit = if owned { ROW_BYTES_MAX - OWNER_BYTES } else { ROW_BYTES_MAX };
    within("bytes of a key", key.len(), limit)
}

impl EntryRun<'_> {
    /// Puts a key. Fails if it is to keep a value or lease that does not exist.
    pub fn put(&mut self, put: &Put) -> Result<PutAnswer> {
        self.check_put(put)?;
        self.put_checked(put)
    }

    /// Checks the preconditions of a put: first its lease, then its key.
    pub fn check_put(&mut self, put: &Put) -> Result<()> {
        let lease = put.lease.unwrap_or(0);
        check_rows(&put.key, lease != 0)?;
        self.check_lease(lease)?;
        if let Some(value) = &put.value {
            self.check_prefix_quotas(&put.key, value.len())?;
        }
        if put.value.is_some() && put.lease.is_some() {
            return Ok(());
        }
        let kept = self.overlay.newest(&put.key)?.ok_or(Error::KeyNotFound)?;
        if put.value.is_none() && self.limits_results() {
            self.add_result(kept.len())?;
        }
        Ok(())
    }

    /// Executes a put that has been checked. A value or lease that is to be
    /// kept but does not exist is empty: a transaction may have deleted the key
    /// after the check.
    pub fn put_checked(&mut self, put: &Put) -> Result<PutAnswer> {
        let prev = self.overlay.newest(&put.key)?;
        let old = prev.as_ref().map(|tail| Tail::parse(tail)).unwrap_or_default();
        let value = put.value.as_ref().map_or(old.value, |value| &value[..]);
        self.overlay.put(&put.key, value, put.lease.unwrap_or(old.lease), prev.as_ref());
        let prev = prev.filter(|_| put.prev_kv);
        let prev = prev.map(|tail| Kv { key: put.key.clone(), tail });
        Ok(PutAnswer { revision: self.overlay.revision(), prev })
    }

    pub fn delete(&mut self, delete: &Delete) -> Result<DeleteAnswer> {
        self.check_delete(delete)?;
        self.delete_checked(delete)
    }

    /// Limits the number of keys deleted at once and the bytes of previous
    /// values returned.
    pub fn check_delete(&mut self, delete: &Delete) -> Result<()> {
        let (range, limit) = (&delete.range, self.deleted_keys_max);
        if range.single_key().is_some() {
            return Ok(());
        }
        if self.overlay.state.counts.read().total() > limit {
            let count = self.overlay.count(range)?;
            if count > limit {
                let what = "keys deleted at once";
                return Err(Error::Limit { what, size: count as u64, limit: limit as u64 });
            }
        }
        if delete.prev_kv && self.limits_results() {
            let bytes =
                self.overlay.measure(range, self.overlay.revision(), None, RESULT_BYTES_MAX)?;
            self.add_result(bytes)?;
        }
        Ok(())
    }

    /// Returns whether the version of the proposal limits the size of its
    /// results.
    pub fn limits_results(&self) -> bool {
        self.version >= VERSION_OF_LIMITS
    }

    /// Counts bytes that the current transaction returns or keeps.
    pub fn add_result(&mut self, bytes: usize) -> Result<()> {
        self.result_bytes = self.result_bytes.saturating_add(bytes);
        within("bytes of keys and values in a response", self.result_bytes, RESULT_BYTES_MAX)
    }

    pub fn delete_checked(&mut self, delete: &Delete) -> Result<DeleteAnswer> {
        let mut prev = Vec::new();
        let returned = (delete.prev_kv && self.awaited).then_some(&mut prev);
        let deleted = match delete.range.single_key() {
            Some(key) => self.delete_one(key, returned)?,
            None => self.overlay.delete_range(&delete.range, returned)?,
        };
        Ok(DeleteAnswer { revision: self.overlay.revision(), deleted, prev })
    }

    fn delete_one(&mut self, key: &Bytes, prev: Option<&mut Vec<Kv>>) -> Result<i64> {
        let Some(tail) = self.overlay.newest(key)? else { return Ok(0) };
        self.overlay.delete(key, &tail);
        if let Some(prev) = prev {
            prev.push(Kv { key: key.clone(), tail });
        }
        Ok(1)
    }

    /// Counts the bytes that a range inside a transaction will return, on the
    /// state before the transaction.
    pub fn check_range_bytes(&mut self, query: &RangeQuery) -> Result<()> {
        if query.count_only || !self.limits_results() {
            return Ok(());
        }
        let left = RESULT_BYTES_MAX.saturating_sub(self.result_bytes);
        let bytes = self.measure_range(query, left)?;
        self.add_result(bytes)
    }

    /// Executes a range inside a transaction, which sees the operations before
    /// it.
    pub fn range(&self, query: &RangeQuery) -> Result<RangeAnswer> {
        if !self.awaited {
            let revision = self.overlay.revision();
            return Ok(RangeAnswer { revision, kvs: Vec::new(), more: false, count: 0 });
        }
        let mut kvs = Vec::new();
        let summary = self.overlay.range(query, &mut |view| kvs.push(view.to_kv()))?;
        let RangeSummary { more, count, revision } = summary;
        Ok(RangeAnswer { revision, kvs, more, count })
    }

    /// Returns an upper bound on the bytes of keys and values that a command
    /// would return.
    pub fn measure_results(&self, command: &Command) -> Result<usize> {
        match command {
            Command::Put(put) => self.measure_put(put),
            Command::Delete(delete) => self.measure_delete(delete),
            Command::Txn(txn) => self.measure_txn(txn),
            _ => Ok(0),
        }
    }

    fn measure_put(&self, put: &Put) -> Result<usize> {
        let kept = if put.prev_kv { self.overlay.newest(&put.key)? } else { None };
        Ok(kept.map_or(0, |tail| put.key.len() + tail.len()))
    }

    fn measure_delete(&self, delete: &Delete) -> Result<usize> {
        if !delete.prev_kv {
            return Ok(0);
        }
        self.overlay.measure(&delete.range, self.overlay.revision(), None, RESULT_BYTES_MAX)
    }

    /// Returns the larger of the two branches, since the choice is not known
    /// yet.
    fn measure_txn(&self, txn: &Txn) -> Result<usize> {
        let branch = |ops: &[Op]| {
            ops.iter().try_fold(0usize, |sum, op| {
                let bytes = match op {
                    Op::Range(query) => self.measure_range(query, RESULT_BYTES_MAX)?,
                    Op::Put(put) => self.measure_put(put)?,
                    Op::Delete(delete) => self.measure_delete(delete)?,
                    Op::Txn(txn) => self.measure_txn(txn)?,
                };
                Ok::<_, Error>(sum.saturating_add(bytes).min(RESULT_BYTES_MAX))
            })
        };
        Ok(branch(&txn.success)?.max(branch(&txn.failure)?))
    }

    /// Returns the approximate bytes that a range inside a transaction returns.
    /// Stops counting above `bytes_max`.
    fn measure_range(&self, query: &RangeQuery, bytes_max: usize) -> Result<usize> {
        if query.count_only {
            return Ok(0);
        }
        let now = self.overlay.revision();
        let at = if query.revision <= 0 { now } else { query.revision };
        let limit = usize::try_from(query.limit).unwrap_or(0);
        let limited = limit > 0 && query.in_key_order() && !query.filters();
        let rows_max = limited.then(|| limit.saturating_add(1));
        self.overlay.measure(&query.range, at, rows_max, bytes_max)
    }
}
