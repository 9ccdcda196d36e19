//! Reads over streams that break at any point: every row is returned once, in
//! order.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use tonic::Code;

use super::flaky::{Flaky, ReadScript};
use crate::{Cell, Error, Query, Row, RowRange};

fn row(key: &[u8], cells: usize) -> Row {
    let cell = |at: usize| Cell {
        family: ["f", "g"][at % 2].into(),
        qualifier: vec![at as u8; at].into(),
        timestamp_micros: at as i64,
        value: vec![b'v'; at].into(),
        labels: if at == 1 { vec!["l".into()] } else { vec![] },
    };
    Row { key: Bytes::copy_from_slice(key), cells: (0..cells).map(cell).collect() }
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"ab\x00\xff".to_vec()), 1..4)
}

fn transient() -> impl Strategy<Value = Code> {
    let codes = [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Internal];
    prop::sample::select(codes.to_vec())
}

fn scripts() -> impl Strategy<Value = Vec<ReadScript>> {
    let script = (1..6usize, (0..12usize, transient()), any::<bool>(), any::<bool>());
    let script = script.prop_map(|(message_chunks, cut, resets, progress)| ReadScript {
        message_chunks,
        cut: Some(cut),
        resets,
        progress,
    });
    prop::collection::vec(script, 0..6)
}

#[derive(Clone, Debug)]
enum Wanted {
    All,
    Some(Vec<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let some = (prop::collection::vec(keys(), 0..5), prop::collection::vec((keys(), keys()), 0..4));
    prop_oneof![Just(Wanted::All), some.prop_map(|(keys, ranges)| Wanted::Some(keys, ranges))]
}

fn query(wanted: &Wanted) -> Query {
    match wanted {
        Wanted::All => Query::all(),
        Wanted::Some(keys, ranges) => {
            let range =
                |(start, end): &(Vec<u8>, Vec<u8>)| RowRange::new(start.clone(), end.clone());
            ranges.iter().map(range).fold(Query::keys(keys.clone()), Query::and_range)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn rows_come_once_and_in_order_however_streams_break(
        rows in prop::collection::btree_map(keys(), 1..4usize, 0..12),
        wanted in wanted(),
        limit in prop::option::of(0..6u64),
        reversed: bool,
        reads in scripts(),
    ) {
        let flaky = Flaky::default();
        flaky.0.lock().rows =
            rows.iter().map(|(key, cells)| (key.clone(), row(key, *cells))).collect();
        flaky.0.lock().reads = reads;

        let mut request = query(&wanted);
        if let Some(limit) = limit {
            request = request.limit(limit);
        }
        if reversed {
            request = request.reversed();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = runtime.block_on(flaky.client().table("t").unwrap().read_rows(request).collect());

        let is_wanted = |key: &[u8]| match &wanted {
            Wanted::All => true,
            Wanted::Some(keys, ranges) => {
                let within = |(start, end): &(Vec<u8>, Vec<u8>)| &start[..] <= key && key < &end[..];
                keys.iter().any(|other| other == key) || ranges.iter().any(within)
            }
        };
        let mut expected: Vec<_> = rows.keys().filter(|key| is_wanted(key)).cloned().collect();
        if reversed {
            expected.reverse();
        }
        expected.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        let expected: Vec<_> = expected.iter().map(|key| row(key, rows[key])).collect();
        prop_assert_eq!(read.unwrap(), expected);
    }
}

fn cut(after: usize, code: Code) -> ReadScript {
    ReadScript { message_chunks: 1, cut: Some((after, code)), resets: false, progress: false }
}

fn three_rows() -> Flaky {
    let flaky = Flaky::default();
    let rows = ["a", "b", "c"].map(|key| (key.as_bytes().to_vec(), row(key.as_bytes(), 2)));
    flaky.0.lock().rows = rows.into_iter().collect();
    flaky
}

#[tokio::test]
async fn a_read_goes_on_after_the_last_whole_row() {
    let flaky = three_rows();
    // A row has three chunks: the stream breaks in the middle of the second row.
    flaky.0.lock().reads = vec![cut(4, Code::Unavailable)];
    let rows = flaky.client().table("t").unwrap().read_rows(Query::all().limit(9)).collect().await;
    assert_eq!(rows.unwrap().len(), 3);
    let requests = flaky.0.lock().read_requests.clone();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].rows, None);
    let left = RowRange::from("a\0").message();
    assert_eq!(requests[1].rows.as_ref().unwrap().row_ranges, [left]);
    assert_eq!(requests[1].rows_limit, 8);
}

#[tokio::test]
async fn a_read_that_has_its_last_row_sends_no_request() {
    let flaky = three_rows();
    flaky.0.lock().reads = vec![cut(3, Code::Aborted)];
    let table = flaky.client().table("t").unwrap();
    assert!(table.read_row("a", None).await.unwrap().is_some());
    let rows = table.read_rows(Query::keys(["b"])).collect().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(flaky.0.lock().read_requests.len(), 2);
}

#[tokio::test]
async fn permanent_failures_end_the_read() {
    let flaky = three_rows();
    flaky.0.lock().reads = vec![cut(3, Code::PermissionDenied)];
    let mut rows = flaky.client().table("t").unwrap().read_rows(Query::all());
    assert_eq!(rows.next().await.unwrap().unwrap().key, "a");
    assert_eq!(rows.next().await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(rows.next().await.unwrap(), None);
    assert_eq!(flaky.0.lock().read_requests.len(), 1);
}

#[tokio::test]
async fn attempts_without_progress_are_bounded() {
    let flaky = three_rows();
    flaky.0.lock().reads = vec![cut(1, Code::Unavailable); 20];
    let error = flaky.client().table("t").unwrap().read_rows(Query::all()).next().await;
    assert_eq!(error.unwrap_err().code(), Code::Unavailable);
    assert_eq!(flaky.0.lock().read_requests.len(), 8);
    // Each row is progress, so a stream that breaks at every row is read to the
    // end.
    flaky.0.lock().read_requests.clear();
    let keys: BTreeSet<_> = (0..20u8).map(|key| vec![key]).collect();
    flaky.0.lock().rows = keys.iter().map(|key| (key.clone(), row(key, 1))).collect();
    flaky.0.lock().reads = vec![cut(1, Code::Unavailable); 20];
    let rows = flaky.client().table("t").unwrap().read_rows(Query::all()).collect().await;
    assert_eq!(rows.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_all_attempts_together() {
    let flaky = three_rows();
    flaky.0.lock().reads = vec![cut(0, Code::Unavailable); 1000];
    let mut options = flaky.client().options().clone();
    options.retry.attempts_max = 1000;
    options.retry.backoff_min = std::time::Duration::from_secs(1);
    options.retry.backoff_max = std::time::Duration::from_secs(1);
    let client = flaky.client_with(options);
    let query = Query::all().deadline(std::time::Duration::from_secs(10));
    let error = client.table("t").unwrap().read_rows(query).next().await.unwrap_err();
    let Error::Deadline { last: Some(last), .. } = &error else { panic!("{error}") };
    assert!(last.contains("cut off"), "{error}");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(flaky.0.lock().read_requests.len() < 25);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_makes_progress_outlives_the_deadline_of_a_call() {
    let flaky = Flaky::default();
    let keys = (0..20u8).map(|key| vec![key]);
    flaky.0.lock().rows = keys.map(|key| (key.clone(), row(&key, 1))).collect();
    flaky.0.lock().reads = vec![cut(1, Code::Unavailable); 20];
    let mut options = flaky.client().options().clone();
    options.deadline = Some(std::time::Duration::from_secs(10));
    options.retry.backoff_min = std::time::Duration::from_secs(4);
    options.retry.backoff_max = std::time::Duration::from_secs(4);
    let table = flaky.client_with(options).table("t").unwrap();
    assert_eq!(table.read_rows(Query::all()).collect().await.unwrap().len(), 20);
}

/// A stream that is dropped before its end is reset, and many resets can
/// terminate the connection for all its calls.
#[tokio::test]
async fn a_single_row_is_read_to_the_end_of_its_stream() {
    let flaky = Flaky::default();
    flaky.0.lock().rows.insert(b"k".to_vec(), row(b"k", 3));
    let table = flaky.client().table("t").unwrap();
    assert_eq!(table.read_row("k", None).await.unwrap(), Some(row(b"k", 3)));
    assert_eq!(table.read_row("none", None).await.unwrap(), None);
    assert_eq!(flaky.0.lock().reads_ended, 2);
}
