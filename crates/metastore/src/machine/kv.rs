//! Single writes and the ranges of transactions, with etcd's rules.

use bytes::Bytes;

use super::Running;
use super::batch::owned;
use crate::command::{Delete, DeleteAnswer, Put, PutAnswer, RangeAnswer, RangeQuery};
use crate::error::{Error, Result};
use crate::state::{Tail, pick};

impl Running<'_> {
    /// Puts a key, unless what it asks to keep is not there.
    pub fn put(&mut self, put: &Put) -> Result<PutAnswer> {
        self.check_put(put)?;
        self.put_checked(put)
    }

    /// What must hold before a put: first its lease, then its key.
    pub fn check_put(&self, put: &Put) -> Result<()> {
        if put.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        self.check_lease(put.lease.unwrap_or(0))?;
        if (put.value.is_none() || put.lease.is_none()) && self.batch.newest(&put.key)?.is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    /// Puts a key whose put has been checked. What is not there to be kept is
    /// empty: a transaction may have deleted the key after the check.
    pub fn put_checked(&mut self, put: &Put) -> Result<PutAnswer> {
        let prev = self.batch.newest(&put.key)?;
        let old = prev.as_ref().map(|tail| Tail::parse(tail)).unwrap_or_default();
        let value = put.value.as_ref().map_or(old.value, |value| &value[..]);
        self.batch.put(&put.key, value, put.lease.unwrap_or(old.lease), prev.as_ref());
        let prev = prev.filter(|_| put.prev_kv);
        let prev = prev.map(|tail| crate::command::Kv { key: put.key.clone(), tail });
        Ok(PutAnswer { revision: self.batch.revision(), prev })
    }

    pub fn delete(&mut self, delete: &Delete) -> Result<DeleteAnswer> {
        self.check_delete(delete)?;
        self.delete_checked(delete)
    }

    /// A range of too many keys is not deleted at once.
    pub fn check_delete(&self, delete: &Delete) -> Result<()> {
        let (range, limit) = (&delete.range, self.deleted_keys_max);
        if self.batch.state.counts.read().total() <= limit || range.single_key().is_some() {
            return Ok(());
        }
        let count = self.batch.count(range)?;
        if count > limit {
            let what = "keys deleted at once";
            return Err(Error::Limit { what, size: count as u64, limit: limit as u64 });
        }
        Ok(())
    }

    pub fn delete_checked(&mut self, delete: &Delete) -> Result<DeleteAnswer> {
        let found = self.batch.collect(&delete.range)?;
        for kv in &found {
            self.batch.delete(&kv.key, &kv.tail);
        }
        let deleted = found.len() as i64;
        let prev = if delete.prev_kv { found } else { Vec::new() };
        Ok(DeleteAnswer { revision: self.batch.revision(), deleted, prev })
    }

    /// A range inside a transaction, which sees what came before it.
    pub fn range(&self, query: &RangeQuery) -> Result<RangeAnswer> {
        let (now, range) = (self.batch.revision(), &query.range);
        let at = if query.revision <= 0 { now } else { query.revision };
        let latest = at == now;
        if query.count_only && latest {
            let count = self.batch.count(range)?;
            return Ok(RangeAnswer { revision: now, kvs: Vec::new(), more: false, count });
        }
        let limit = usize::try_from(query.limit).unwrap_or(0);
        let limited = limit > 0 && query.in_key_order() && !query.filters() && latest;
        let mut kvs = Vec::new();
        let wanted = limited.then(|| limit.saturating_add(1));
        self.batch.each(range, at, wanted, &mut |view| kvs.push(owned(view)))?;
        let found = kvs.len() as i64;
        let count = match wanted {
            Some(wanted) if kvs.len() >= wanted => self.batch.count(range)?,
            _ => found,
        };
        if query.count_only {
            return Ok(RangeAnswer { revision: now, kvs: Vec::new(), more: false, count });
        }
        if query.order == crate::command::Order::None && limit > 0 && !query.filters() {
            // An order that is only implied comes after the limit.
            kvs.truncate(limit.saturating_add(1));
        }
        let more = pick(query, &mut kvs);
        if query.keys_only {
            for kv in &mut kvs {
                kv.tail = Bytes::from(Tail { value: &[], ..kv.view().fields() }.encode());
            }
        }
        Ok(RangeAnswer { revision: now, kvs, more, count })
    }
}
