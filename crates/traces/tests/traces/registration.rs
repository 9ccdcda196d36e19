//! Commits keep their assigned index, whatever fails and in whatever order jobs run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::support::*;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use stele_bigtable_client::Mutation;
use stele_traces::store::{Commit, NewCommit, TableSettings};
use stele_traces::{CommitIndex, Error, Store};
use tonic::service::Routes;

const COMMITS: u32 = 12;

fn commit(index: u32) -> Commit {
    let hash = hash(index);
    Commit { hash, author: "ada".into(), time: i64::from(index), subject: String::new() }
}

fn line(commits: std::ops::Range<u32>) -> Vec<Commit> {
    commits.map(commit).collect()
}

fn appended(commits: std::ops::Range<u32>) -> Vec<NewCommit> {
    commits.map(|index| NewCommit { commit: commit(index), index: None }).collect()
}

/// Returns the routes, where the write after `left` others fails, before or after it
/// takes effect, with an error that no client retries.
fn failing(served: &Served, left: &Arc<AtomicI64>, done_first: bool) -> Routes {
    let left = left.clone();
    let layer = middleware::from_fn(move |request: Request, next: Next| {
        let left = left.clone();
        async move {
            let path = request.uri().path();
            let writes = ["/MutateRow", "/MutateRows", "/CheckAndMutateRow"];
            let is_write = writes.iter().any(|method| path.ends_with(method));
            if !is_write || left.fetch_sub(1, Ordering::SeqCst) != 0 {
                return next.run(request).await;
            }
            if done_first {
                let _ = next.run(request).await;
            }
            [("grpc-status", "13"), ("content-type", "application/grpc")].into_response()
        }
    });
    Routes::from(served.api.routes().into_axum_router().layer(layer))
}

async fn small_tiles(served: &Served) -> Store {
    let settings = TableSettings { tile: 4, ..TableSettings::default() };
    Store::init(&served.client(), "t", settings).await.unwrap()
}

/// Checks that each commit is registered once, in order, and found by its hash.
async fn check(store: &Store, commits: u32) {
    let found = store.commits(CommitIndex(0), CommitIndex(1000)).await.unwrap();
    let hashes: Vec<_> = found.values().map(|commit| commit.hash.clone()).collect();
    assert_eq!(hashes, (0..commits).map(hash).collect::<Vec<_>>());
    for index in 0..commits {
        assert_eq!(store.find_commit(&hash(index)).await.unwrap().0, CommitIndex(index));
    }
}

/// Fails each write of `work` in turn, then runs the work again successfully.
async fn fail_each_write(work: impl AsyncFn(&Store) -> Result<(), Error>) {
    for done_first in [false, true] {
        for at in 0.. {
            let served = Served::new();
            small_tiles(&served).await;
            let left = Arc::new(AtomicI64::new(at));
            let store = Store::open(&client(failing(&served, &left, done_first)), "t").await;
            let outcome = work(&store.unwrap()).await;
            let failed = left.load(Ordering::SeqCst) < 0;
            assert_eq!(outcome.is_err(), failed, "write {at}: {outcome:?}");
            let again = served.again().await;
            work(&again).await.unwrap();
            check(&again, COMMITS).await;
            if !failed {
                assert!(at >= 5, "expected writes of three tiles, the hashes and the mark");
                break;
            }
        }
    }
}

#[tokio::test]
async fn commits_sent_again_after_a_failure_at_any_write_keep_their_indexes() {
    fail_each_write(async |store| store.register(&appended(0..COMMITS)).await.map(|_| ())).await;
}

#[tokio::test]
async fn a_registration_repeated_after_a_failed_write_is_complete() {
    fail_each_write(async |store| store.follow(line(0..COMMITS), &mut |_, _| ()).await.map(|_| ()))
        .await;
}

#[tokio::test]
async fn commits_without_hash_rows_are_found_in_every_tile() {
    let served = Served::new();
    let store = small_tiles(&served).await;
    store.register(&appended(0..COMMITS)).await.unwrap();
    // A table of an older version has neither a mark nor hash rows.
    let table = served.client().table("t").unwrap();
    let drop_row = || [Mutation::delete_row()];
    table.mutate_row(":vc:n:0000000000:", drop_row()).await.unwrap();
    for index in 0..COMMITS {
        let row = stele_traces::row_name::commit_by_hash(&hash(index), 32);
        table.mutate_row(row, drop_row()).await.unwrap();
    }
    let again = served.again().await;
    let indexes = again.register(&appended(0..COMMITS + 1)).await.unwrap();
    assert_eq!(indexes, (0..=COMMITS).map(CommitIndex).collect::<Vec<_>>());
    check(&again, COMMITS + 1).await;
}

#[tokio::test]
async fn a_late_job_adds_nothing_and_finds_its_commit() {
    let served = Served::new();
    let store = small_tiles(&served).await;
    let mut none = |_, _| ();
    assert_eq!(store.follow(line(0..10), &mut none).await.unwrap(), 10);
    for late in [1, 4, 7, 10] {
        assert_eq!(store.follow(line(0..late), &mut none).await.unwrap(), 0);
        assert!(store.find_commit(&hash(late - 1)).await.is_ok());
    }
    assert_eq!(store.follow(line(0..12), &mut none).await.unwrap(), 2);
    assert_eq!(store.follow(Vec::new(), &mut none).await.unwrap(), 0);
    check(&store, 12).await;
}

#[tokio::test]
async fn a_line_that_the_table_does_not_follow_is_rejected() {
    let served = Served::new();
    let store = small_tiles(&served).await;
    let mut none = |_, _| ();
    store.follow(line(0..6), &mut none).await.unwrap();
    // Another tip, shorter, of the same length and longer; another repository.
    let other = |at: usize, length: u32| {
        let mut line = line(0..length);
        line[at].hash = format!("{:040x}", 7);
        line
    };
    for wrong in [other(4, 5), other(5, 6), other(5, 9), other(2, 3)] {
        let error = store.follow(wrong, &mut none).await.unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error}");
        check(&store, 6).await;
    }
}
