//! Concurrency: ingesters that write to a new tile, readers during the writes, and
//! concurrent triage of one digest.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use axum::extract::Request;
use axum::middleware::{self, Next};
use stele_traces::store::{Commit, Label, NewCommit, NewLabel};
use stele_traces::{CommitIndex, Error};
use tokio::task::JoinSet;
use tonic::service::Routes;

const INGESTERS: u32 = 8;

/// Returns results of one ingester at one commit: some params and digests are unique to
/// it, some are shared by all.
fn results(ingester: u32, commit: u32) -> Vec<stele_traces::store::Entry> {
    (0..20)
        .map(|at| {
            let id = format!(",bot=b{ingester},name=t{at},shared=s{},", (at + ingester) % 5);
            entry(&id, &format!("digest {} {}", (at + commit) % 7, ingester % 2))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ingesters_that_race_on_a_new_tile_lose_no_results() {
    let served = Served::new();
    served.store(300).await;
    let mut tasks = JoinSet::new();
    for ingester in 0..INGESTERS {
        // Each with its own caches, like separate processes.
        let store = served.again().await;
        tasks.spawn(async move {
            for commit in [255, 256, 257] {
                store.put(&[put_at(commit, NOON, results(ingester, commit))]).await.unwrap();
            }
        });
    }
    // Concurrent readers see a part of the results, and never an error.
    let reader = served.again().await;
    tasks.spawn(async move {
        for _ in 0..20 {
            let grid = digests(&reader, dense(10), "").await;
            assert!(grid.traces.len() <= (INGESTERS * 20) as usize);
            assert_eq!(grid.skipped, 0);
        }
    });
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let store = served.again().await;
    let grid = digests(&store, range(255, 257), "").await;
    assert_eq!(grid.traces.len(), (INGESTERS * 20) as usize);
    let names: Vec<String> =
        (0..7).flat_map(|at| [0, 1].map(|half| format!("digest {at} {half}"))).collect();
    assert_eq!(store.load_digest_map().await.unwrap(), names.len());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = formatted(&grid, &names);
    for ingester in 0..INGESTERS {
        for at in 0..20 {
            let id = format!(",bot=b{ingester},name=t{at},shared=s{},", (at + ingester) % 5);
            let cell = |commit| format!("digest {} {}", (at + commit) % 7, ingester % 2);
            assert_eq!(found[&id], [255, 256, 257].map(cell).concat());
        }
    }
    // Each digest number is used once.
    let distinct: HashSet<_> = grid.digests.iter().collect();
    assert_eq!(distinct.len(), grid.digests.len());
}

/// Returns the id of a digest in the digest map.
async fn id_of(served: &Served, name: &str) -> u64 {
    let table = served.client().table("t").unwrap();
    let rows = table.read_rows(stele_bigtable_client::Query::all()).collect().await.unwrap();
    let digest = digest(name).to_string();
    let row = rows.iter().find(|row| row.key.ends_with(format!(":{}", &digest[..3]).as_bytes()));
    let cell = row.unwrap().latest("D", &digest.as_bytes()[3..]).unwrap();
    cell.value.iter().rev().fold(0, |id, byte| id << 7 | u64::from(byte & 0x7f))
}

#[tokio::test]
async fn unused_ids_are_used_for_the_next_digests() {
    let served = Served::new();
    put(&served.store(3).await, 0, vec![entry(",a=1,", "first")]).await;
    // When armed, another process assigns an id just before this one does.
    let armed = Arc::new(AtomicBool::new(false));
    let (other, armed_here) = (served.again().await, armed.clone());
    let layer = middleware::from_fn(move |request: Request, next: Next| {
        let (other, armed) = (other.clone(), armed_here.clone());
        async move {
            let conditional = request.uri().path().ends_with("/CheckAndMutateRow");
            if conditional && armed.swap(false, Ordering::SeqCst) {
                put(&other, 1, vec![entry(",a=1,", "contested")]).await;
            }
            next.run(request).await
        }
    });
    let routes = Routes::from(served.api.routes().into_axum_router().layer(layer));
    let store = stele_traces::Store::open(&client(routes), "t").await.unwrap();
    put(&store, 0, vec![entry(",a=1,", "mine")]).await;
    let mine = id_of(&served, "mine").await;
    armed.store(true, Ordering::SeqCst);
    put(&store, 2, vec![entry(",a=1,", "contested")]).await;
    assert!(!armed.load(Ordering::SeqCst), "no other process interfered");
    // The loser used the winner's id and kept its own for the next digest.
    assert!(id_of(&served, "contested").await > mine + 1);
    put(&store, 0, vec![entry(",a=1,", "next")]).await;
    assert_eq!(id_of(&served, "next").await, mine + 1);
    let grid = digests(&served.again().await, range(0, 2), "").await;
    let names = ["next", "contested"];
    assert_eq!(formatted(&grid, &names), expect([(",a=1,", "nextcontestedcontested")]));
}

#[tokio::test]
async fn a_param_set_is_written_only_when_something_is_new() {
    let served = Served::new();
    let store = served.store(3).await;
    let stored = async || {
        let table = served.client().table("t").unwrap();
        table.read_row(":ts:o:2147483647:", None).await.unwrap().unwrap()
    };
    put(&store, 0, vec![entry(",gpu=x,os=a,", "a"), entry(",os=b,", "a")]).await;
    let before = stored().await;
    // Another process, another order, a subset: nothing is new to the tile.
    let other = served.again().await;
    put(&other, 1, vec![entry(",os=b,", "a"), entry(",os=a,", "a"), entry(",gpu=x,", "b")]).await;
    assert_eq!(stored().await, before);
    put(&other, 1, vec![entry(",os=c,", "a")]).await;
    assert_ne!(stored().await, before);
    // The first process continues from the set that the other has written.
    put(&store, 2, vec![entry(",gpu=y,os=c,", "b")]).await;
    let grid = digests(&store, range(0, 2), "").await;
    assert_eq!((grid.traces.len(), grid.skipped), (6, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrently_appended_commits_get_one_index_each() {
    let served = Served::new();
    let settings = stele_traces::store::TableSettings { tile: 8, ..Default::default() };
    stele_traces::Store::init(&served.client(), "t", settings).await.unwrap();
    let mut tasks = JoinSet::new();
    for who in 0..4u32 {
        let store = served.again().await;
        tasks.spawn(async move {
            let mut indexes = Vec::new();
            for at in 0..5 {
                let name = format!("{:07x}", who * 100 + at);
                let commit =
                    Commit { hash: name, author: String::new(), time: 0, subject: String::new() };
                let new = [NewCommit { commit, index: None }];
                let index = store.register(&new).await.unwrap()[0];
                // Registering it again returns the same index.
                assert_eq!(store.register(&new).await.unwrap(), [index]);
                indexes.push(index.0);
            }
            assert!(indexes.is_sorted());
            indexes
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
    let store = served.again().await;
    assert_eq!(store.head().await.unwrap().unwrap().0, CommitIndex(19));
    let listed = store.commits(CommitIndex(0), CommitIndex(u32::MAX)).await.unwrap();
    assert_eq!(listed.len(), 20);
    for (index, commit) in listed {
        assert_eq!(store.find_commit(&commit.hash).await.unwrap().0, index);
    }
}

#[tokio::test]
async fn a_commit_keeps_its_place() {
    let served = Served::new();
    let store = served.store(5).await;
    let commit = |hash: &str| Commit {
        hash: hash.into(),
        author: String::new(),
        time: 0,
        subject: String::new(),
    };
    let other = NewCommit { commit: commit("fedcba9"), index: Some(CommitIndex(3)) };
    let error = store.register(&[other]).await.err().unwrap();
    assert!(matches!(error, Error::Conflict(_)), "{error}");
    assert_eq!(store.find_commit("@3").await.unwrap().1.hash, hash(3));
    let error = store.find_commit("@5").await.err().unwrap();
    assert!(matches!(error, Error::UnknownCommit(_)), "{error}");
    let moved = NewCommit { commit: commit(&hash(3)), index: Some(CommitIndex(4000)) };
    assert!(matches!(store.register(&[moved]).await, Err(Error::Conflict(_))));
    let wrong = NewCommit { commit: commit("UPPER12"), index: None };
    assert!(matches!(store.register(&[wrong]).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_label_is_changed_only_if_it_is_as_expected() {
    let served = Served::new();
    let (one, other) = (served.store(1).await, served.again().await);
    let change = |expected, label| NewLabel {
        test: "blur: a,b=%".into(),
        digest: digest("a"),
        label,
        expected,
        by: "ada".into(),
    };
    one.label(&change(Label::Untriaged, Label::Positive)).await.unwrap();
    let late = other.label(&change(Label::Untriaged, Label::Negative)).await.err().unwrap();
    assert!(matches!(late, Error::Conflict(_)), "{late}");
    other.label(&change(Label::Positive, Label::Negative)).await.unwrap();
    other.label(&change(Label::Negative, Label::Untriaged)).await.unwrap();
    one.label(&change(Label::Untriaged, Label::Positive)).await.unwrap();
    let labels = other.labels(["blur: a,b=%", "else"]).await.unwrap();
    assert_eq!(labels.len(), 1);
    assert_eq!(labels["blur: a,b=%"][&digest("a")].label, Label::Positive);
    let history = one.label_history("blur: a,b=%", digest("a")).await.unwrap();
    let labels: Vec<_> = history.iter().map(|it| it.label).collect();
    use Label::{Negative, Positive, Untriaged};
    assert_eq!(labels, [Positive, Untriaged, Negative, Positive]);
    let all = one.all_labels().await.unwrap();
    assert_eq!(all, other.labels(["blur: a,b=%"]).await.unwrap());
    // Of many concurrent changes, one wins.
    let mut tasks = JoinSet::new();
    for at in 0..6 {
        let store = served.again().await;
        let label = if at % 2 == 0 { Negative } else { Untriaged };
        let new = change(Positive, label);
        tasks.spawn(async move { store.label(&new).await.is_ok() });
    }
    let won = tasks.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}
