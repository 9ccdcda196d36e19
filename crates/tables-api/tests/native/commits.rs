//! Commits: atomic over rows, conditional, durable as requested.

use stele_engine::RowRange;
use stele_engine::schema::{Family, Schema};
use stele_tables_api::proto::{ApplyRequest, SyncRequest, View, Wait};
use stele_tables_api::{RowCommit, ScanOptions, TableError};
use tonic::Code;

use crate::fixture::{Served, TABLE, refusal};

fn set(rows: &[&str], value: &str) -> RowCommit {
    let mut commit = RowCommit::new();
    for row in rows {
        commit.set(row.to_string(), "f", "q", 0, value.to_string());
    }
    commit
}

#[tokio::test]
async fn of_two_commits_that_read_at_the_same_txn_exactly_one_is_applied() {
    let served = Served::new();
    let table = served.table().await;
    table.apply(&set(&["a", "b"], "0")).await.unwrap();
    let (_, txn) = table.read("a").await.unwrap();
    table.apply_if(&set(&["a", "b"], "1"), txn).await.unwrap();
    let lost = table.apply_if(&set(&["b", "c"], "2"), txn).await.unwrap_err();
    assert!(matches!(lost, TableError::Conflict(_)), "{lost}");
    assert_eq!(lost.status().code(), Code::Aborted);
    assert_eq!(lost.reason().unwrap(), "MUTATION_CONFLICT");
    assert!(table.read("c").await.unwrap().0.is_none(), "none of its rows is changed");
    let (row, _) = table.read("b").await.unwrap();
    assert_eq!(row.unwrap().value("f", "q").unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_row_is_inserted_by_one_of_many() {
    let served = Served::new();
    let table = served.table().await;
    let (row, txn) = table.read("new").await.unwrap();
    assert!(row.is_none() && txn > 0);
    let inserts = (0..16).map(|number| {
        let table = table.clone();
        tokio::spawn(async move { table.apply_if(&set(&["new"], &number.to_string()), txn).await })
    });
    let mut inserted = 0;
    for insert in inserts.collect::<Vec<_>>() {
        match insert.await.unwrap() {
            Ok(_) => inserted += 1,
            Err(error) => assert!(matches!(error, TableError::Conflict(_)), "{error}"),
        }
    }
    assert_eq!(inserted, 1);
}

#[tokio::test]
async fn a_touched_row_is_checked_and_not_changed() {
    let served = Served::new();
    let table = served.table().await;
    let txn = table.apply(&set(&["read"], "1")).await.unwrap();
    let mut commit = set(&["written"], "x");
    commit.touch("read");
    table.apply_if(&commit, txn).await.unwrap();
    assert_eq!(table.read("read").await.unwrap().0.unwrap().cells.len(), 1);
    let conflict = table.apply_if(&commit, txn).await.unwrap_err();
    assert!(matches!(conflict, TableError::Conflict(_)), "{conflict}");
}

#[tokio::test]
async fn an_applied_commit_is_durable_after_sync() {
    let served = Served::new();
    let table = served.table().await;
    let txn = table.apply_as(&set(&["a"], "1"), None, Wait::Applied).await.unwrap();
    let all = ScanOptions { view: View::AllCommits, ..ScanOptions::all() };
    assert_eq!(served.keys(all).await, ["a"], "visible to those that ask for it");
    assert!(table.sync(Some(txn)).await.unwrap() >= txn);
    assert_eq!(served.keys(ScanOptions::all()).await, ["a"]);
}

#[tokio::test]
async fn sync_is_clipped_to_the_newest_commit_and_returns_at_once_if_all_is_durable() {
    let served = Served::new();
    let table = served.table().await;
    let txn = table.apply(&set(&["a"], "1")).await.unwrap();
    assert_eq!(table.sync(None).await.unwrap(), txn);
    assert_eq!(table.sync(Some(i64::MAX as u64)).await.unwrap(), txn);
    let request = SyncRequest { table: TABLE.into(), table_id: served.id, txn: Some(u64::MAX) };
    let refused = served.calls.clone().sync(request).await;
    assert_eq!(refusal(refused), (Code::InvalidArgument, "INVALID_TXN".into()));
}

#[tokio::test]
async fn sync_does_not_vouch_for_commits_of_an_earlier_run() {
    let served = Served::new();
    let txn = served.fill(["a"]).await;
    let served = served.reopened();
    let request = SyncRequest { table: TABLE.into(), table_id: served.id, txn: Some(txn) };
    let refused = served.calls.clone().sync(request).await;
    assert_eq!(refusal(refused), (Code::FailedPrecondition, "FORGOTTEN_TXN".into()));
    let table = served.table().await;
    table.sync(None).await.unwrap();
    let old = table.apply_if(&set(&["a"], "2"), txn).await.unwrap_err();
    assert!(matches!(old, TableError::Conflict(_)), "what was read before is too old: {old}");
}

#[tokio::test]
async fn a_commit_with_one_row_that_is_not_loaded_changes_nothing() {
    let served = Served::new();
    served.tables.split(served.table_id(), b"m").unwrap();
    served.tables.unload(served.table_id(), &RowRange::from("m")).unwrap();
    let table = served.table().await;
    let refused = table.apply(&set(&["a", "z"], "1")).await.unwrap_err();
    assert!(matches!(refused, TableError::NotLoaded(_)), "{refused}");
    assert_eq!(refused.status().code(), Code::FailedPrecondition);
    assert_eq!(refused.reason().unwrap(), "TABLET_NOT_LOADED");
    assert!(table.read("a").await.unwrap().0.is_none());
}

#[tokio::test]
async fn a_commit_for_another_schema_is_refused() {
    let served = Served::new();
    let version = served.table().await.opened().schema_version;
    let commit = set(&["a"], "1").pack(served.table_id());
    let request = |version| ApplyRequest {
        schema_version: version,
        commit: commit.clone(),
        ..served.apply_request()
    };
    served.calls.clone().apply(request(version)).await.unwrap();
    let groups = served.tables.schema(served.table_id()).unwrap().groups().to_vec();
    let mut changed = groups;
    changed[0].families.push(Family::new("h"));
    served.tables.alter(served.table_id(), Schema::new(changed).unwrap(), &[]).unwrap();
    let refused = served.calls.clone().apply(request(version)).await;
    assert_eq!(refusal(refused), (Code::Aborted, "SCHEMA_CHANGED".into()));
    let opened = served.table().await;
    assert_eq!(opened.opened().families, ["f", "g", "h"]);
    served.calls.clone().apply(request(opened.opened().schema_version)).await.unwrap();
}

#[tokio::test]
async fn acknowledged_commits_are_there_after_the_tables_are_opened_again() {
    let served = Served::new();
    served.fill(["a", "b", "c"]).await;
    let served = served.reopened();
    assert_eq!(served.keys(ScanOptions::all()).await, ["a", "b", "c"]);
}
