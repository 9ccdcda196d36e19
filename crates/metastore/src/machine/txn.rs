//! etcd's transactions: evaluates all compares on the state before, checks the
//! chosen path, then executes its operations in order.

use std::cmp::Ordering;

use stele_engine::Flow;

use super::overlay::Bounds;
use super::run::EntryRun;
use crate::command::{Compare, Op, OpAnswer, Operand, Relation, Txn, TxnAnswer};
use crate::error::{Error, Result};
use crate::key::Tail;

/// The maximum number of keys that the compares of one transaction may read.
/// Checked before the transaction is proposed: entries in the log are applied
/// whatever they read.
pub const COMPARED_KEYS_MAX: usize = 100_000;

/// The chosen branches, in the order in which the path visits the transactions.
type Path = Vec<bool>;

impl EntryRun<'_> {
    pub fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer> {
        let path = self.path(txn)?;
        self.check_path(txn, &mut path.iter(), &mut EntryRun::check_write_op)?;
        self.check_path(txn, &mut path.iter(), &mut EntryRun::check_range_op)?;
        self.check_path(txn, &mut path.iter(), &mut EntryRun::check_range_op_bytes)?;
        self.execute_path(txn, &mut path.iter())
    }

    /// Evaluates the compares and chooses the branches of a transaction.
    pub fn path(&mut self, txn: &Txn) -> Result<Path> {
        let mut path = Path::new();
        self.choose(txn, &mut path)?;
        Ok(path)
    }

    fn choose(&mut self, txn: &Txn, path: &mut Path) -> Result<()> {
        let mut holds = true;
        for compare in &txn.compares {
            holds = holds && self.compare(compare)?;
        }
        path.push(holds);
        for op in branch(txn, holds) {
            if let Op::Txn(txn) = op {
                self.choose(txn, path)?;
            }
        }
        Ok(())
    }

    /// Returns whether every key of the range satisfies the relation; stops at
    /// the first that does not. An empty range is treated as one key of zeros,
    /// without a value to compare.
    fn compare(&mut self, compare: &Compare) -> Result<bool> {
        let (mut any, mut all) = (false, true);
        if let Some(key) = compare.range.single_key() {
            if let Some(tail) = self.overlay.newest(key)? {
                any = true;
                all = holds(compare, &Tail::parse(&tail));
            }
        } else {
            let left = &mut self.compared_left;
            let newest = self.overlay.revision();
            self.overlay.each(&compare.range, newest, Bounds::default(), &mut |view| {
                any = true;
                all = holds(compare, &view.fields());
                *left = left.saturating_sub(1);
                if all && *left > 0 { Flow::Continue } else { Flow::Stop }
            })?;
            if all && *left == 0 {
                let limit = COMPARED_KEYS_MAX as u64;
                let what = "keys compared in one transaction";
                return Err(Error::Limit { what, size: limit + 1, limit });
            }
        }
        if any {
            return Ok(all);
        }
        let compares_value = matches!(compare.operand, Operand::Value(_));
        Ok(!compares_value && holds(compare, &Tail::default()))
    }

    fn check_path(
        &mut self,
        txn: &Txn,
        path: &mut std::slice::Iter<'_, bool>,
        check: &mut impl FnMut(&mut Self, &Op) -> Result<()>,
    ) -> Result<()> {
        let chosen = *path.next().expect("the path has a choice for every transaction on it");
        for op in branch(txn, chosen) {
            match op {
                Op::Txn(txn) => self.check_path(txn, path, check)?,
                _ => check(self, op)?,
            }
        }
        Ok(())
    }

    fn check_write_op(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Put(put) => self.check_put(put),
            Op::Delete(delete) => self.check_delete(delete),
            Op::Range(_) | Op::Txn(_) => Ok(()),
        }
    }

    fn check_range_op_bytes(&mut self, op: &Op) -> Result<()> {
        if let Op::Range(query) = op { self.check_range_bytes(query) } else { Ok(()) }
    }

    fn check_range_op(&mut self, op: &Op) -> Result<()> {
        let Op::Range(query) = op else { return Ok(()) };
        if query.revision > self.overlay.revision() {
            return Err(Error::FutureRevision);
        }
        let compacted = self.compacted();
        // Within a transaction, only 0 means the newest revision, as in etcd.
        if query.revision != 0 && query.revision < compacted {
            return Err(Error::Compacted { compacted });
        }
        Ok(())
    }

    fn execute_path(
        &mut self,
        txn: &Txn,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<TxnAnswer> {
        let succeeded = *path.next().expect("the path has a choice for every transaction on it");
        let mut ops = Vec::with_capacity(branch(txn, succeeded).len());
        for op in branch(txn, succeeded) {
            ops.push(match op {
                Op::Range(query) => OpAnswer::Range(self.range(query)?),
                Op::Put(put) => OpAnswer::Put(self.put_checked(put)?),
                Op::Delete(delete) => OpAnswer::Delete(self.delete_checked(delete)?),
                Op::Txn(txn) => OpAnswer::Txn(self.execute_path(txn, path)?),
            });
        }
        Ok(TxnAnswer { succeeded, ops })
    }
}

fn branch(txn: &Txn, chosen: bool) -> &[Op] {
    if chosen { &txn.success } else { &txn.failure }
}

fn holds(compare: &Compare, found: &Tail<'_>) -> bool {
    let ordering = match &compare.operand {
        Operand::Version(given) => found.version.cmp(given),
        Operand::Create(given) => found.create_revision.cmp(given),
        Operand::Mod(given) => found.mod_revision.cmp(given),
        Operand::Lease(given) => found.lease.cmp(given),
        Operand::Value(given) => found.value.cmp(&given[..]),
        Operand::Unknown => Ordering::Equal,
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Any => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRange;
    use crate::machine::fixture::Fixture;
    use crate::machine::newest::on_newest;

    #[test]
    fn the_first_key_of_a_range_that_decides_a_compare_is_the_last_that_is_read() {
        let member = Fixture::new();
        member.put_all((0..3000).map(|at| format!("{at:04}")));
        member.put("0700", "newer");
        let (state, leases) = (&member.parts.state, &member.parts.leases);
        let compared = |left: usize, range: KeyRange, operand: Operand, relation| {
            on_newest(state, leases, |run| {
                run.compared_left = left;
                let compare = Compare { range: range.clone(), relation, operand: operand.clone() };
                let holds = run.compare(&compare)?;
                Ok((holds, left - run.compared_left))
            })
        };
        let (all, many) = (KeyRange::all, usize::MAX);
        let none = compared(many, all(), Operand::Version(0), Relation::Equal).unwrap();
        assert_eq!(none, (false, 1));
        let unchanged = compared(many, all(), Operand::Mod(3), Relation::Less).unwrap();
        assert_eq!(unchanged, (false, 701));
        let every = compared(many, all(), Operand::Mod(4), Relation::Less).unwrap();
        assert_eq!(every, (true, 3000));
        let refused = compared(1000, all(), Operand::Mod(4), Relation::Less).unwrap_err();
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
        assert!(compared(1000, all(), Operand::Mod(3), Relation::Less).is_ok());
        let one = compared(0, KeyRange::single("0001"), Operand::Mod(4), Relation::Less).unwrap();
        assert_eq!(one, (true, 0), "single keys are not counted");
    }
}
