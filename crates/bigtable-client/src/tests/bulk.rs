//! Bulk writes with partial failures: what may be retried is retried until it
//! succeeds; what may not is sent once.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use tonic::{Code, Status};

use super::flaky::Flaky;
use crate::{Error, Mutation, RowMutations, Rule};

fn idempotent(key: Bytes) -> RowMutations {
    RowMutations::new(key, [Mutation::set_at("f", "q", 1000, "v")])
}

fn once_only(key: Bytes) -> RowMutations {
    RowMutations::new(key, [Mutation::set("f", "q", "v")])
}

fn is_transient(code: Option<Code>) -> bool {
    matches!(code, Some(Code::Unavailable | Code::Aborted | Code::DeadlineExceeded))
}

/// The outcomes of one row, attempt by attempt.
fn codes() -> impl Strategy<Value = Vec<Code>> {
    let code = prop::sample::select(vec![
        Code::Ok,
        Code::Unavailable,
        Code::Unavailable,
        Code::Aborted,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::Internal,
    ]);
    prop::collection::vec(code, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_row_gets_its_own_outcome_and_only_safe_rows_are_sent_again(
        rows in prop::collection::vec((codes(), any::<bool>()), 1..12),
    ) {
        let key = |at: usize| Bytes::from(format!("row{at:02}"));
        let flaky = Flaky::default();
        let script = |attempt: usize| -> BTreeMap<Bytes, Option<Code>> {
            let code = |(codes, _): &(Vec<Code>, bool)| codes.get(attempt).copied();
            let known = rows.iter().enumerate().filter_map(|(at, row)| Some((key(at), code(row)?)));
            known.map(|(key, code)| (key, Some(code))).collect()
        };
        flaky.0.lock().writes = (0..5).map(script).collect();

        let sent = rows.iter().enumerate().map(|(at, (_, safe))| {
            if *safe { idempotent(key(at)) } else { once_only(key(at)) }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcomes = runtime.block_on(flaky.client().table("t").unwrap().mutate_rows(sent));

        prop_assert_eq!(outcomes.len(), rows.len());
        let requests = flaky.0.lock().write_requests.clone();
        for (at, (codes, safe)) in rows.iter().enumerate() {
            let attempts = if *safe { codes.len() + 1 } else { 1 };
            let mut seen = (0..attempts).map(|attempt| codes.get(attempt).copied());
            let last = seen.position(|code| !is_transient(code)).unwrap_or(attempts - 1);
            let expected = codes.get(last).copied().unwrap_or(Code::Ok);
            let got = outcomes[at].as_ref().map_or_else(Error::code, |()| Code::Ok);
            prop_assert_eq!(got, expected);
            let times = requests.iter().flat_map(|request| &request.entries);
            prop_assert_eq!(times.filter(|entry| entry.row_key == key(at)).count(), last + 1);
        }
    }
}

#[tokio::test]
async fn rows_that_are_not_reported_count_as_failed() {
    let flaky = Flaky::default();
    flaky.0.lock().writes = vec![BTreeMap::from([("b".into(), None)])];
    let rows = [idempotent("a".into()), idempotent("b".into())];
    let outcomes = flaky.client().table("t").unwrap().mutate_rows(rows).await;
    assert!(outcomes[0].is_ok());
    assert!(outcomes[1].as_ref().unwrap_err().to_string().contains("every row was reported"));
}

#[tokio::test]
async fn a_request_that_fails_whole_is_sent_again_for_safe_rows() {
    let flaky = Flaky::default();
    flaky.0.lock().singles = vec![Status::unavailable("restarting")];
    let rows = [idempotent("a".into()), once_only("b".into())];
    let outcomes = flaky.client().table("t").unwrap().mutate_rows(rows).await;
    assert!(outcomes[0].is_ok());
    assert_eq!(outcomes[1].as_ref().unwrap_err().code(), Code::Unavailable);
    let requests = flaky.0.lock().write_requests.clone();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].entries.len(), 1);
}

#[tokio::test]
async fn long_lists_are_cut_into_requests_within_the_limits() {
    let flaky = Flaky::default();
    let many = (0..3).map(|at| {
        let one = Mutation::set_at("f", "q", at * 1000, "");
        RowMutations::new(format!("r{at}"), std::iter::repeat_n(one, 40_000))
    });
    let large = (0..3).map(|at| {
        RowMutations::new(format!("s{at}"), [Mutation::set_at("f", "q", 0, vec![0; 3 << 20])])
    });
    let outcomes = flaky.client().table("t").unwrap().mutate_rows(many.chain(large)).await;
    assert_eq!(outcomes.len(), 6);
    assert!(outcomes.iter().all(Result::is_ok));
    let requests = flaky.0.lock().write_requests.clone();
    let rows: Vec<_> = requests.iter().map(|request| request.entries.len()).collect();
    assert_eq!(rows, [2, 2, 1, 1]);
    for request in requests {
        let mutations: usize = request.entries.iter().map(|entry| entry.mutations.len()).sum();
        assert!(mutations <= 100_000);
    }
}

#[tokio::test]
async fn no_rows_are_no_call() {
    let flaky = Flaky::default();
    assert!(flaky.client().table("t").unwrap().mutate_rows([]).await.is_empty());
    assert_eq!(flaky.0.lock().single_calls, 0);
}

#[tokio::test]
async fn a_single_write_is_repeated_only_if_that_changes_nothing() {
    let calls = async |mutation: Mutation| {
        let flaky = Flaky::default();
        flaky.0.lock().singles = vec![Status::unavailable("x"), Status::aborted("y")];
        let table = flaky.client().table("t").unwrap();
        let outcome = table.mutate_row("k", [mutation]).await.is_ok();
        let calls = flaky.0.lock().single_calls;
        (outcome, calls)
    };
    assert_eq!(calls(Mutation::set_at("f", "q", 0, "v")).await, (true, 3));
    assert_eq!(calls(Mutation::set("f", "q", "v")).await, (false, 1));
    assert_eq!(calls(Mutation::add("f", "q", 0, 1)).await, (false, 1));
}

#[tokio::test]
async fn checks_and_increments_are_never_repeated_and_samples_are() {
    let flaky = Flaky::default();
    flaky.0.lock().singles = vec![Status::unavailable("x"); 3];
    let table = flaky.client().table("t").unwrap();
    let checked = table.check_and_mutate("k", None, [Mutation::delete_row()], []).await;
    assert_eq!(checked.unwrap_err().code(), Code::Unavailable);
    let grown = table.read_modify_write("k", [Rule::increment("f", "q", 1)]).await;
    assert_eq!(grown.unwrap_err().code(), Code::Unavailable);
    assert_eq!(flaky.0.lock().single_calls, 2);
    assert_eq!(table.sample_row_keys().await.unwrap().len(), 1);
    assert_eq!(flaky.0.lock().single_calls, 4);
}
