//! What is refused before it is proposed: rules that look at the request
//! alone. The order of the checks is etcd's, so that a request with two faults
//! gets the same refusal.

use std::collections::HashSet;

use super::range::{KeyRange, RangeEnd, RangeQuery};
use super::txn::{Delete, Op, Put, Txn};
use crate::error::{Error, Result};

pub fn check_range(query: &RangeQuery) -> Result<()> {
    check_key(&query.range.start)
}

pub fn check_put(put: &Put) -> Result<()> {
    check_key(&put.key)
}

pub fn check_delete(delete: &Delete) -> Result<()> {
    check_key(&delete.range.start)
}

/// Keys, the number of operations, and keys written twice.
pub fn check_txn(txn: &Txn, ops_max: usize) -> Result<()> {
    check_ops(txn, ops_max)?;
    for branch in [&txn.success, &txn.failure] {
        Writes::of(branch)?;
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// A nested transaction may have as many operations as its parent leaves.
fn check_ops(txn: &Txn, ops_max: usize) -> Result<()> {
    let ops = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
    let ops_left = ops_max.checked_sub(ops).ok_or(Error::TooManyOps)?;
    for compare in &txn.compares {
        check_key(&compare.range.start)?;
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
    /// Refuses a key that is put twice, or put and deleted. The two branches
    /// of a nested transaction exclude each other, so they may repeat.
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
            // A deletion of all keys from one on is left to the order of the
            // operations, as etcd does.
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
