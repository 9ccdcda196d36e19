//! S1.7: what answers cost and hold in one process. That a tenure can refuse them is
//! tested in `answer.rs`.

use std::future::ready;
use std::sync::Arc;

use stele_engine::{BatchEnd, Error, Options, Result, ScanSpec, Snapshot, Txn, View};
use stele_tables::{Answer, Tenure};

use crate::fixture::{Fixture, block_on};

#[test]
fn scale_1_7_answers_take_no_space_and_a_tenure_is_one_pointer() {
    // It is null in one process, so that opening an answer is one comparison.
    assert_eq!(size_of::<Tenure>(), size_of::<usize>());
    assert_eq!(size_of::<Answer<BatchEnd>>(), size_of::<Result<BatchEnd>>());
    assert_eq!(size_of::<Answer<Arc<Snapshot>>>(), size_of::<Result<Arc<Snapshot>>>());
}

#[test]
fn scale_1_7_the_tenure_of_one_process_opens_results_and_errors_as_they_are() {
    let fixture = Fixture::new(Options::default());
    let (local, tenure) = (fixture.local(), fixture.tables.tenure());
    let commit = fixture.set("r", 1);
    let permit = local.try_admit(&commit).unwrap().unwrap();
    let txn = tenure.open(local.apply(permit, Txn::MAX)).unwrap();
    tenure.open(block_on(local.durable(txn, || ready(())))).unwrap();
    assert_eq!(tenure.open(local.progress()).unwrap(), (txn, txn));

    let mut cells = 0;
    let read = local.read_row(b"r", &ScanSpec::default(), |_| cells += 1);
    assert_eq!(tenure.open(read).unwrap(), txn);
    let first = local.read_first(b"r", &View::Durable, None, |_| cells += 1);
    assert_eq!(tenure.open(first).unwrap().txn, txn);
    assert_eq!(cells, 2);
    assert_eq!(tenure.open(local.snapshot()).unwrap().txn(), txn);
    assert!(tenure.open(local.sizes()).unwrap().memory_bytes() > 0);

    // A row that was written after it was read.
    let permit = local.try_admit(&commit).unwrap().unwrap();
    let conflict = tenure.open(local.apply(permit, Txn::ZERO));
    assert!(matches!(conflict, Err(Error::MutationConflict { .. })), "{conflict:?}");
}
