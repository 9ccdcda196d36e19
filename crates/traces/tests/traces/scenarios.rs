//! Typical ingestion: one device after another, the same file many times, from
//! processes with and without cached rows, and at the limits of stored data.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::support::*;
use stele_traces::ingest::{Files, Ingested};
use stele_traces::store::{Commit, Entry, Label, NewCommit, NewLabel};
use stele_traces::{CommitIndex, Error, Kind, Params, Store};
use tokio::task::JoinSet;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Returns one object of the native JSON format.
fn report(commit: u32, results: &[(&str, &str, &str)]) -> String {
    let results: Vec<_> = results
        .iter()
        .map(|(os, name, content)| {
            serde_json::json!({"params": {"os": os, "name": name}, "content": content})
        })
        .collect();
    serde_json::json!({"commit": hash(commit), "time": 1_560_340_800, "results": results})
        .to_string()
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn ingest(store: &Store, paths: Vec<PathBuf>) -> Result<Ingested, Error> {
    Files { paths, ..Files::default() }.ingest(store, &mut |_| {}).await
}

#[tokio::test]
async fn results_put_device_by_device_make_one_grid() {
    let served = Served::new();
    let store = served.store(3).await;
    for device in ["x", "y", "z"] {
        let puts: Vec<_> = (0..3)
            .map(|at| {
                let id = |test| format!(",device={device},name={test},");
                put_at(at, NOON, vec![entry(&id("r"), NAMES[at as usize]), entry(&id("s"), "d")])
            })
            .collect();
        let stored = store.put(&puts).await.unwrap();
        assert_eq!((stored.entries, stored.rows), (6, 2));
    }
    let grid = digests(&served.again().await, range(0, 2), "").await;
    assert_eq!(
        formatted(&grid, &NAMES),
        expect([
            (",device=x,name=r,", "abc"),
            (",device=x,name=s,", "ddd"),
            (",device=y,name=r,", "abc"),
            (",device=y,name=s,", "ddd"),
            (",device=z,name=r,", "abc"),
            (",device=z,name=s,", "ddd"),
        ])
    );
}

#[tokio::test]
async fn processes_with_and_without_cached_rows_write_the_same() {
    let served = Served::new();
    let knowing = served.store(60).await;
    let model = |commit: u32, trace: u32| NAMES[((commit * 7 + trace * trace) % 4) as usize];
    for commit in 0..60 {
        // Another order, other traces and other processes from time to time.
        let mut traces: Vec<u32> =
            (0..40).filter(|trace| (trace + commit) % 9 != 0 && *trace <= commit * 2).collect();
        if commit % 7 == 3 {
            traces.reverse();
        }
        let entries = traces
            .iter()
            .flat_map(|trace| {
                let id = format!(",name=t{trace},os=o{},", trace % 3);
                [entry(&id, model(commit, *trace)), number(&id, f64::from(commit * trace))]
            })
            .collect();
        let store = if commit % 11 == 5 { served.again().await } else { knowing.clone() };
        put(&store, commit, entries).await;
    }
    let grid = digests(&served.again().await, range(0, 59), "").await;
    assert_eq!((grid.traces.len(), grid.skipped), (40, 0));
    let found = formatted(&grid, &NAMES);
    let numbers = knowing.grid(Kind::Numbers, range(0, 59), &query("")).await.unwrap();
    for trace in 0..40u32 {
        let there = |commit: u32| !(trace + commit).is_multiple_of(9) && trace <= commit * 2;
        let cell = |commit: u32| if there(commit) { model(commit, trace) } else { "-" };
        let expected: String = (0..60).map(cell).collect();
        let id = format!(",name=t{trace},os=o{},", trace % 3);
        assert_eq!(found[&id], expected, "{id}");
        let at = numbers.traces.iter().position(|trace| trace.params.id() == id).unwrap();
        let stele_traces::store::Cells::Numbers(cells) = &numbers.traces[at].cells else {
            panic!("expected numbers")
        };
        for (commit, cell) in (0..60).zip(cells) {
            assert_eq!(!cell.is_nan(), there(commit));
            assert!(cell.is_nan() || *cell == f64::from(commit * trace));
        }
    }
}

#[tokio::test]
async fn a_duplicate_result_of_one_commit_stores_nothing() {
    let served = Served::new();
    let store = served.store(3).await;
    let twice = || vec![entry(",a=1,", "a"), entry(",a=2,", "a"), entry(",a=1,", "b")];
    let refused = |error: Error| {
        assert!(matches!(&error, Error::Invalid(what) if what.contains("twice")), "{error}");
    };
    refused(store.put(&[put_at(0, NOON, twice())]).await.unwrap_err());
    assert_eq!(digests(&store, dense(9), "").await.columns, []);
    // The same with cached rows.
    put(&store, 1, vec![entry(",a=1,", "a"), entry(",a=2,", "a")]).await;
    let first = put_at(0, NOON, vec![entry(",a=1,", "c")]);
    refused(store.put(&[first, put_at(2, NOON, twice())]).await.unwrap_err());
    assert_eq!(columns(&digests(&store, dense(9), "").await), [1]);
    // A digest and a number of one trace are two results.
    put(&store, 2, vec![entry(",a=1,", "a"), number(",a=1,", 1.0)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_file_many_times_at_once_is_stored_once() {
    let served = Served::new();
    let store = served.store(10).await;
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..10)
        .map(|at| {
            let name = NAMES[at as usize % 4];
            report(at, &[("x", "one", name), ("y", "one", "a"), ("x", "two", name)])
        })
        .collect::<Vec<_>>()
        .join("\n");
    let path = file(&dir, "results.json", &text);
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (store, path) = (served.again().await, path.clone());
        tasks.spawn(async move { ingest(&store, vec![path]).await });
    }
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.unwrap().unwrap(), Ingested { results: 30, skipped: 0, done: 1.0 });
    }
    let grid = digests(&store, dense(99), "").await;
    assert_eq!(
        formatted(&grid, &NAMES),
        expect([
            (",name=one,os=x,", "abcdabcdab"),
            (",name=one,os=y,", "aaaaaaaaaa"),
            (",name=two,os=x,", "abcdabcdab"),
        ])
    );
    assert_eq!(store.load_digest_map().await.unwrap(), 4);
}

#[tokio::test]
async fn the_last_of_several_files_of_one_commit_wins() {
    let served = Served::new();
    let store = served.store(2).await;
    let dir = tempfile::tempdir().unwrap();
    let paths = (0..4)
        .map(|at| file(&dir, &at.to_string(), &report(1, &[("x", "one", NAMES[at])])))
        .collect();
    assert_eq!(ingest(&store, paths).await.unwrap().results, 4);
    let grid = digests(&store, dense(9), "").await;
    assert_eq!(formatted(&grid, &NAMES), expect([(",name=one,os=x,", "d")]));
}

#[tokio::test]
async fn errors_name_the_file() {
    let served = Served::new();
    let store = served.store(1).await;
    let dir = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("PNG", "--format"),
        ("{", "invalid JSON"),
        (r#"{"results": [{"params": {"a": "b"}, "value": 1}]}"#, "names no commit"),
        ("<html/>", "expected a test suite"),
    ] {
        let error = ingest(&store, vec![file(&dir, "bad.file", text)]).await.unwrap_err();
        assert!(
            error.to_string().contains("bad.file") && error.to_string().contains(expected),
            "{error}"
        );
    }
    let missing = ingest(&store, vec![dir.path().join("none")]).await.unwrap_err();
    assert!(missing.to_string().contains("none"), "{missing}");
    let empty = ingest(&store, vec![dir.path().into()]).await.unwrap_err();
    assert!(empty.to_string().contains("Criterion") || empty.to_string().contains("bad.file"));
    assert_eq!(digests(&store, dense(9), "").await.columns, []);
}

#[tokio::test]
async fn commits_of_the_same_second_keep_their_order() {
    let served = Served::new();
    let store = served.store(0).await;
    let commits: Vec<_> = (0..5)
        .map(|at| NewCommit {
            commit: Commit { hash: hash(at), author: "".into(), time: 7, subject: "".into() },
            index: None,
        })
        .collect();
    let indexes = store.register(&commits).await.unwrap();
    assert_eq!(indexes, (0..5).map(CommitIndex).collect::<Vec<_>>());
    for (at, name) in (1..5).zip(NAMES) {
        put(&store, at, vec![entry(",a=1,", name)]).await;
    }
    let grid = digests(&store, dense(2), "").await;
    assert_eq!((columns(&grid), &*formatted(&grid, &NAMES)[",a=1,"]), (vec![3, 4], "cd"));
}

#[tokio::test]
async fn the_largest_params_are_stored_and_their_tests_triaged() {
    let served = Served::new();
    let store = served.store(1).await;
    // The maximum number of pairs, and the maximum number of bytes.
    let pairs = (0..64).map(|at| (format!("key{at:02}"), "v".repeat(59)));
    let wide = Params::new(pairs).unwrap();
    let long = "%".repeat(1024);
    let deep = Params::new([("name", long.as_str()), ("a=,", "%%%")]).unwrap();
    let results =
        [&wide, &deep].map(|params| Entry { params: params.clone(), ..entry(",a=1,", "a") });
    put(&store, 0, results.to_vec()).await;
    let grid = digests(&served.again().await, dense(1), "").await;
    let found: HashSet<_> = grid.traces.iter().map(|trace| trace.params.clone()).collect();
    assert_eq!(found, HashSet::from([wide, deep.clone()]));
    assert!(store.history(&deep).await.unwrap().is_some());
    let label = NewLabel {
        test: long.clone(),
        digest: digest("a"),
        label: Label::Positive,
        expected: Label::Untriaged,
        by: "ada".into(),
    };
    store.label(&label).await.unwrap();
    let labels = store.labels([long.as_str()]).await.unwrap();
    assert_eq!(labels[&long][&digest("a")].label, Label::Positive);
}
