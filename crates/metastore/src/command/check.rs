//! Checks of requests before they are proposed, by rules that need only the
//! request itself. They run in etcd's order, so that a request with two errors
//! gets the same one.
//!
//! Outside of tests, [`pack`] is the only way from a command to the bytes of a
//! proposal. It refuses whatever the storage engine would refuse when the entry
//! is applied: an entry that cannot be applied would stop the member for good.

use std::collections::HashSet;

use bytes::Bytes;

use super::auth::Caller;
use super::encoding::encode_as;
use super::quota::check_quota;
use super::range::RangeQuery;
use super::txn::{Delete, Execute, Op, Put, Txn};
use super::{Command, Restore};
use crate::error::{Error, Result};
use crate::key::{KeyRange, RangeEnd};

/// The maximum length of a row in the tables of the metastore.
pub const ROW_BYTES_MAX: usize = 4 << 20;
/// The length of the owner id before the key in the rows of leases and
/// sessions.
pub const OWNER_BYTES: usize = 8;
/// The maximum length of a key, also with a lease or a lock.
pub const KEY_BYTES_MAX: usize = ROW_BYTES_MAX - OWNER_BYTES;
/// The maximum size of a proposal. It also limits values, which are part of a
/// proposal, and the commits that proposals become.
pub const PROPOSAL_BYTES_MAX: usize = 32 << 20;
/// The maximum nesting of transactions; the services allow fewer operations.
pub const TXN_DEPTH_MAX: usize = 256;

/// Checks a command and encodes it as a proposal.
pub fn pack(command: &Command, time_micros: i64) -> Result<Bytes> {
    pack_as(None, command, time_micros)
}

/// Checks a command of a caller and encodes it as a proposal.
pub fn pack_as(caller: Option<&Caller>, command: &Command, time_micros: i64) -> Result<Bytes> {
    check(command)?;
    let proposal = encode_as(caller, command, time_micros);
    within("bytes of a proposal", proposal.len(), PROPOSAL_BYTES_MAX)?;
    Ok(proposal)
}

/// Refuses a command whose effects would exceed a limit of the storage engine.
fn check(command: &Command) -> Result<()> {
    match command {
        Command::Put(put) => check_key_bytes(&put.key),
        Command::Txn(txn) => check_tree(txn, 0),
        Command::Execute(Execute { writes, .. }) => {
            writes.iter().try_for_each(|write| check_key_bytes(&write.key))
        }
        Command::Acquire(acquire) => check_key_bytes(&acquire.key),
        Command::Release { key, .. } => check_key_bytes(key),
        Command::Restore(Restore { kvs, .. }) => {
            kvs.iter().try_for_each(|kv| check_key_bytes(&kv.key))
        }
        Command::RestoreHistory(history) => {
            history.changes.iter().try_for_each(|change| check_key_bytes(&change.key))
        }
        Command::SetQuota { prefix, quota } => check_quota(prefix, quota.as_ref()),
        Command::RaiseLevel { level } => super::level::check_level(*level),
        Command::Delete(_)
        | Command::Compact { .. }
        | Command::LeaseGrant { .. }
        | Command::LeaseRevoke { .. }
        | Command::Expire { .. }
        | Command::Alarm(_)
        | Command::Sample { .. }
        | Command::Waterline { .. }
        | Command::LeaseDeadlines { .. }
        | Command::Auth(_) => Ok(()),
    }
}

fn check_tree(txn: &Txn, depth: usize) -> Result<()> {
    within("levels of nested transactions", depth, TXN_DEPTH_MAX)?;
    txn.success.iter().chain(&txn.failure).try_for_each(|op| match op {
        Op::Put(put) => check_key_bytes(&put.key),
        Op::Txn(txn) => check_tree(txn, depth + 1),
        Op::Range(_) | Op::Delete(_) => Ok(()),
    })
}

fn check_key_bytes(key: &[u8]) -> Result<()> {
    within("bytes of a key", key.len(), KEY_BYTES_MAX)
}

pub(crate) fn within(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    Err(Error::Limit { what, size: size as u64, limit: limit as u64 })
}

pub fn check_range(query: &RangeQuery) -> Result<()> {
    check_key_given(&query.range.start)
}

pub fn check_put(put: &Put) -> Result<()> {
    check_key_given(&put.key)
}

pub fn check_delete(delete: &Delete) -> Result<()> {
    check_key_given(&delete.range.start)
}

/// Checks keys, the number of operations, and keys written twice.
pub fn check_txn(txn: &Txn, ops_max: usize) -> Result<()> {
    check_ops(txn, ops_max)?;
    for branch in [&txn.success, &txn.failure] {
        Writes::of(branch)?;
    }
    Ok(())
}

/// Refuses an empty key, as etcd does.
fn check_key_given(key: &[u8]) -> Result<()> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Checks the operations. A nested transaction may have as many as its parent
/// leaves.
fn check_ops(txn: &Txn, ops_max: usize) -> Result<()> {
    let ops = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
    let ops_left = ops_max.checked_sub(ops).ok_or(Error::TooManyOps)?;
    for compare in &txn.compares {
        check_key_given(&compare.range.start)?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(query) => check_range(query)?,
            Op::Put(put) => check_put(put)?,
            Op::Delete(delete) => check_delete(delete)?,
            Op::Txn(txn) => check_ops(txn, ops_left)?,
        }
    }
    Ok(())
}

/// The keys that a list of operations puts, and the ranges that it deletes.
struct Writes<'a> {
    puts: HashSet<&'a [u8]>,
    deletes: Vec<&'a KeyRange>,
}

impl<'a> Writes<'a> {
    /// Refuses a key that is put twice, or put and deleted. The two branches of
    /// a nested transaction exclude each other, so they may write the same
    /// keys.
    fn of(ops: &'a [Op]) -> Result<Writes<'a>> {
        let deletes = ops.iter().filter_map(|op| match op {
            Op::Delete(delete) => Some(&delete.range),
            _ => None,
        });
        let mut writes = Writes { puts: HashSet::new(), deletes: deletes.collect() };
        for op in ops {
            let Op::Txn(txn) = op else { continue };
            let (then, other) = (Writes::of(&txn.success)?, Writes::of(&txn.failure)?);
            for key in &then.puts {
                writes.put(key)?;
            }
            for key in other.puts.iter().filter(|key| !then.puts.contains(*key)) {
                writes.put(key)?;
            }
            for key in other.puts.iter().filter(|key| then.puts.contains(*key)) {
                writes.check_undeleted(key)?;
            }
            writes.deletes.extend(then.deletes);
            writes.deletes.extend(other.deletes);
        }
        for op in ops {
            if let Op::Put(put) = op {
                writes.put(&put.key)?;
            }
        }
        Ok(writes)
    }

    fn put(&mut self, key: &'a [u8]) -> Result<()> {
        if !self.puts.insert(key) {
            return Err(Error::DuplicateKey);
        }
        self.check_undeleted(key)
    }

    fn check_undeleted(&self, key: &[u8]) -> Result<()> {
        let covers = |range: &&KeyRange| match &range.end {
            RangeEnd::Single => range.start == key,
            RangeEnd::Before(_) => range.contains(key),
            // Like etcd, allows a put with an unbounded deletion; the order of
            // the operations decides.
            RangeEnd::Unbounded => false,
        };
        if self.deletes.iter().any(covers) { Err(Error::DuplicateKey) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Compare, Operand, Relation};

    fn put(key: &'static str) -> Op {
        Op::Put(Put::new(key, "v"))
    }

    fn delete(from: &'static str, to: &'static str) -> Op {
        Op::Delete(Delete::new(KeyRange::from_wire(from.into(), to.into())))
    }

    fn nested(success: Vec<Op>, failure: Vec<Op>) -> Op {
        Op::Txn(Txn { compares: vec![], success, failure })
    }

    fn check(success: Vec<Op>) -> Result<()> {
        check_txn(&Txn { success, ..Txn::default() }, 128)
    }

    fn duplicate(success: Vec<Op>) -> bool {
        matches!(check(success), Err(Error::DuplicateKey))
    }

    #[test]
    fn a_key_is_put_once_per_branch_and_not_also_deleted() {
        assert!(duplicate(vec![put("a"), put("a")]));
        assert!(duplicate(vec![put("a"), delete("a", "")]));
        assert!(duplicate(vec![delete("a", "c"), put("b")]));
        assert!(check(vec![delete("a", "\0"), put("b")]).is_ok());
        assert!(check(vec![delete("a", "c"), delete("b", "d"), put("e")]).is_ok());
        let both = Txn { success: vec![put("a")], failure: vec![put("a")], ..Txn::default() };
        assert!(check_txn(&both, 128).is_ok());
    }

    #[test]
    fn branches_of_a_nested_txn_may_repeat_but_not_meet_their_siblings() {
        assert!(check(vec![nested(vec![put("a")], vec![put("a")])]).is_ok());
        assert!(duplicate(vec![nested(vec![put("a")], vec![]), put("a")]));
        assert!(duplicate(vec![nested(vec![], vec![put("a")]), put("a")]));
        assert!(duplicate(vec![nested(vec![put("a")], vec![]), nested(vec![put("a")], vec![])]));
        assert!(duplicate(vec![nested(vec![], vec![put("a")]), nested(vec![], vec![put("a")])]));
        assert!(duplicate(vec![nested(vec![put("a")], vec![put("a")]), delete("a", "")]));
        assert!(duplicate(vec![nested(vec![delete("a", "b")], vec![]), put("a")]));
    }

    #[test]
    fn a_nested_txn_gets_the_operations_that_are_left() {
        let two = |inner: Vec<Op>| Txn {
            success: vec![put("a"), nested(inner, vec![])],
            ..Txn::default()
        };
        assert!(check_txn(&two(vec![put("b")]), 3).is_ok());
        assert!(matches!(check_txn(&two(vec![put("b"), put("c")]), 3), Err(Error::TooManyOps)));
        let compare = |key: &'static str| Compare {
            range: KeyRange::single(key),
            relation: Relation::Equal,
            operand: Operand::Version(0),
        };
        let compares = Txn { compares: vec![compare("a"), compare("b")], ..Txn::default() };
        assert!(matches!(check_txn(&compares, 1), Err(Error::TooManyOps)));
        let empty = Txn { compares: vec![compare("")], ..Txn::default() };
        assert!(matches!(check_txn(&empty, 1), Err(Error::EmptyKey)));
    }
}
