//! Answers, and the tenure that opens them.

use std::sync::Arc;

use stele_engine::Result;

use crate::lease::Lease;

/// The result of a [`Local`](crate::Local), which counts only if this process still
/// serves the row. Only a [`Tenure`] opens it. Errors are results too: that a row was
/// written meanwhile is as much an answer as its cells.
///
/// Cells are passed to a sink before the answer is opened. What the sink has
/// collected must not leave the process unless the answer opens.
///
/// ```compile_fail
/// fn forget_the_check(answer: stele_tables::Answer<u64>) -> u64 {
///     answer.0.unwrap()
/// }
/// ```
#[must_use = "an answer counts only after the tenure has opened it"]
#[derive(Debug)]
pub struct Answer<T>(Result<T>);

impl<T> Answer<T> {
    #[inline]
    pub(crate) fn new(result: Result<T>) -> Answer<T> {
        Answer(result)
    }
}

/// The time during which this process serves its rows.
#[derive(Clone, Debug)]
pub enum Tenure {
    /// The only process, which serves all rows as long as it runs.
    Always,
    /// A server of a cluster, which serves its rows as long as it has its lease.
    Leased(Arc<Lease>),
}

impl Tenure {
    /// Returns the result of an answer, if this process still serves the row. To be
    /// called just before the result is used for a reply.
    #[inline]
    pub fn open<T>(&self, answer: Answer<T>) -> Result<T> {
        match self {
            Tenure::Always => answer.0,
            Tenure::Leased(lease) => lease.check().and(answer.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use stele_engine::schema::{Family, Schema};
    use stele_engine::world::sim::SimFiles;
    use stele_engine::world::{ManualClock, SeededRandom, World};
    use stele_engine::{BatchLimits, Commit, CommitBuilder, Error, Options, ScanSpec, Txn, View};

    use super::*;
    use crate::{LeaseTimes, Local, Placement, Tables};

    fn world() -> World {
        World {
            clock: Arc::new(ManualClock::at(1)),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        }
    }

    /// Returns tables with one row, and a commit to it.
    fn tables() -> (Tables, Commit) {
        let tables = Tables::open(Path::new("/store"), Options::default(), world()).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = tables.create("t", schema).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"r").set(b"f", b"", 0, b"v");
        let commit = commit.finish();
        tables.tenure().open(local(&tables).apply_blocking(&commit)).unwrap();
        (tables, commit)
    }

    fn local(tables: &Tables) -> Local<'_> {
        let Placement::Here(local) = tables.place(tables.table("t").unwrap(), b"r");
        local
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("nothing has to wait without workers"),
        }
    }

    /// Returns whether the tenure refuses to open an answer.
    fn refuses<T>(tenure: &Tenure, answer: Answer<T>) -> bool {
        matches!(tenure.open(answer), Err(Error::Fenced { epoch: 7, .. }))
    }

    /// Returns the tenure of a server whose lease has lapsed.
    fn ended() -> Tenure {
        let clock = Arc::new(ManualClock::at(0));
        let lease = Lease::new(7, clock.clone(), LeaseTimes::default(), Duration::ZERO);
        let tenure = Tenure::Leased(Arc::new(lease));
        assert!(tenure.open(Answer::new(Ok(()))).is_ok(), "it has its lease");
        clock.advance(LeaseTimes::default().ttl);
        tenure
    }

    #[test]
    fn scale_1_7_no_answer_is_opened_after_the_tenure_has_ended() {
        let (tables, commit) = tables();
        let (local, tenure) = (local(&tables), ended());
        let spec = ScanSpec::default;
        let applied = || local.apply(local.try_admit(&commit).unwrap().unwrap(), Txn::MAX);
        let txn = Tenure::Always.open(applied()).unwrap();
        assert!(refuses(&tenure, applied()));
        assert!(refuses(&tenure, now(local.durable(txn, || ready(())))));
        assert!(refuses(&tenure, now(local.durable_by_log(txn))));
        assert!(refuses(&tenure, local.sync(txn)));
        assert!(refuses(&tenure, local.progress()));
        assert!(refuses(&tenure, local.snapshot()));
        assert!(refuses(&tenure, local.sizes()));
        assert!(refuses(&tenure, local.read_row(b"r", &spec(), |_| ())));
        assert!(refuses(&tenure, local.try_read_row(b"r", &spec(), 9, |_| ())));
        assert!(refuses(&tenure, local.read_first(b"r", &View::Latest, None, |_| ())));
        assert!(refuses(&tenure, local.scan(spec())));
    }

    #[test]
    fn scale_1_7_a_scan_ends_with_the_batch_after_the_end_of_the_tenure() {
        let (tables, _) = tables();
        let mut scan = Tenure::Always.open(local(&tables).scan(ScanSpec::default())).unwrap();
        let mut cells = 0;
        let batch = scan.next_batch(BatchLimits::default(), &mut |_| cells += 1);
        assert!(Tenure::Always.open(batch).is_ok() && cells == 1);
        let batch = scan.next_batch(BatchLimits::default(), &mut |_| cells += 1);
        assert!(refuses(&ended(), batch));
        let batch = scan.next_placed_batch(BatchLimits::default(), |_, _| cells += 1);
        assert!(refuses(&ended(), batch));
    }

    #[test]
    fn scale_1_7_a_negative_answer_needs_the_tenure_too() {
        let (tables, commit) = tables();
        let conflict = || {
            let permit = local(&tables).try_admit(&commit).unwrap().unwrap();
            local(&tables).apply(permit, Txn::ZERO)
        };
        let opened = Tenure::Always.open(conflict());
        assert!(matches!(opened, Err(Error::MutationConflict { .. })), "{opened:?}");
        assert!(refuses(&ended(), conflict()));
    }
}
