//! Reads concurrent with a moving waterline. A read first picks a revision and
//! then reads. If the waterline passes the revision in between, versions that
//! the read should see are skipped, and an existing key appears to be absent.

use super::MemberState;
use crate::error::{Error, Result};

/// How far back a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// To the compacted revision.
    Compacted,
    /// To the waterline, for an etcd client's read in progress, which Compact does
    /// not stop.
    InProgress,
    /// To the waterline.
    Retained,
}

/// What a read saw at its revision.
pub enum ReadOutcome<T> {
    /// A complete result: versions at a revision are dropped all together.
    Complete(T),
    /// A result that is complete unless the waterline has passed the revision.
    Tentative(T),
}

impl MemberState {
    /// Returns the revision that a query reads, and the newest. Fails if the
    /// revision is no longer retained or does not exist yet.
    pub fn resolve(&self, wanted: i64, floor: Floor) -> Result<(i64, i64)> {
        let revision = self.revision();
        if wanted <= 0 {
            return Ok((revision, revision));
        }
        if wanted > revision {
            return Err(Error::FutureRevision);
        }
        self.check_floor(wanted, floor)?;
        Ok((wanted, revision))
    }

    pub(crate) fn check_floor(&self, at: i64, floor: Floor) -> Result<()> {
        match floor {
            Floor::Compacted if at < self.compacted() => {
                Err(Error::Compacted { compacted: self.compacted() })
            }
            Floor::InProgress if at < self.waterline() => {
                Err(Error::Compacted { compacted: self.waterline() })
            }
            Floor::Retained if at < self.waterline() => {
                Err(Error::TooOld { revision: at, waterline: self.waterline() })
            }
            _ => Ok(()),
        }
    }

    /// Reads at a revision (0: the newest), and repeats the read if the
    /// waterline may have passed the revision in the meantime. `read` gets the
    /// revision to read at, and the newest.
    pub(crate) fn read_retained<T>(
        &self,
        wanted: i64,
        floor: Floor,
        mut read: impl FnMut(i64, i64) -> Result<ReadOutcome<T>>,
    ) -> Result<T> {
        loop {
            let (at, newest) = self.resolve(wanted, floor)?;
            #[cfg(test)]
            tests::interleave();
            match read(at, newest)? {
                ReadOutcome::Complete(found) => return Ok(found),
                ReadOutcome::Tentative(found) if at >= self.waterline() => return Ok(found),
                // Resolve again: to a newer revision, or to a refusal.
                ReadOutcome::Tentative(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::command::{
        Acquire, Command, KeyRange, LockMode, Op, OpAnswer, RangeQuery, Reply, Txn,
    };
    use crate::machine::fixture::Fixture;
    use crate::machine::read_txn;

    type Step = Box<dyn FnOnce()>;

    thread_local! {
        static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs a test's step between the choice of a revision and the read.
    pub fn interleave() {
        let step = STEPS.with_borrow_mut(Vec::pop);
        if let Some(step) = step {
            step();
        }
    }

    /// Makes the waterline pass the next read: puts its key again and drops
    /// history up to that revision.
    fn pass_next_read(member: &Rc<Fixture>) {
        let member = member.clone();
        let step: Step = Box::new(move || {
            let newest = member.put("k", "passed");
            member.drop_history(newest);
        });
        STEPS.with_borrow_mut(|steps| steps.push(step));
    }

    fn has_run() -> bool {
        STEPS.with_borrow(Vec::is_empty)
    }

    fn value(state: &Arc<MemberState>, revision: i64) -> Result<Option<Vec<u8>>> {
        let query = RangeQuery::new(KeyRange::single("k")).at(revision);
        let mut value = None;
        let read = state.range(&query, Floor::Retained, &mut |view| {
            value = Some(view.value().to_vec());
        })?;
        assert_eq!(read.count, i64::from(value.is_some()));
        Ok(value)
    }

    #[test]
    fn a_key_is_found_though_the_waterline_passes_during_the_read() {
        let member = Rc::new(Fixture::new());
        let state = member.parts.state.clone();
        let old = member.put("k", "old");
        assert!(state.get(b"k", old).unwrap().is_some());
        pass_next_read(&member);
        assert_eq!(value(&state, 0).unwrap().unwrap(), b"passed");
        assert!(has_run());
        assert!(state.get(b"k", old).unwrap().is_none(), "this is what a single read would see");
        let second = member.put("k", "second");
        pass_next_read(&member);
        assert!(matches!(value(&state, second), Err(Error::TooOld { .. })));
        assert!(has_run());
    }

    #[test]
    fn a_transaction_and_a_lock_are_read_though_the_waterline_passes_during_the_read() {
        let member = Rc::new(Fixture::new());
        let (state, leases) = (member.parts.state.clone(), member.parts.leases.clone());
        member.propose(Command::LeaseGrant { id: 7, ttl_seconds: 60 }).unwrap();
        let acquire = |call_id| {
            let (key, session, mode) = (Bytes::from_static(b"k"), 7, LockMode::Exclusive);
            Command::Acquire(Acquire { key, session, mode, no_wait: false, call_id })
        };
        member.put("k", "old");
        let get = Op::Range(RangeQuery::new(KeyRange::single("k")));
        let txn = Txn { success: vec![get], ..Txn::default() };
        pass_next_read(&member);
        let Reply::Txn(answer) = read_txn(&state, &leases, &txn).unwrap().reply else { panic!() };
        let OpAnswer::Range(range) = &answer.ops[0] else { panic!() };
        assert_eq!((range.kvs.len(), has_run()), (1, true));
        assert_eq!(range.kvs[0].view().value(), b"passed");
        // The lock changes again, and history is dropped up to that revision.
        member.propose(acquire(1)).unwrap();
        let other = member.clone();
        let step: Step = Box::new(move || {
            other.propose(acquire(2)).unwrap();
            other.drop_history(other.parts.state.revision());
        });
        STEPS.with_borrow_mut(|steps| steps.push(step));
        let lock = state.lock_info(b"k").unwrap().expect("somebody holds it all the time");
        assert_eq!((lock.holders[0].call_ids.len(), has_run()), (2, true));
    }
}
