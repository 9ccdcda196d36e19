//! Hot rows and columns that are set and deleted repeatedly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::mutate_rows_request::Entry;
use stele_bigtable::proto::v2::mutation::{
    DeleteFromColumn, DeleteFromRow, Mutation as Change, SetCell,
};

use crate::support::{Server, TABLE, make_table, ping};

/// Reached only when something hangs or takes quadratic time.
const WATCHDOG: Duration = Duration::from_secs(240);

fn mutation(change: Change) -> v2::Mutation {
    v2::Mutation { mutation: Some(change), ..Default::default() }
}

fn set(qualifier: &[u8], timestamp_micros: i64) -> v2::Mutation {
    mutation(Change::SetCell(SetCell {
        family_name: "f".into(),
        column_qualifier: qualifier.to_vec().into(),
        timestamp_micros,
        value: "value".into(),
    }))
}

fn delete_column(qualifier: &[u8]) -> v2::Mutation {
    mutation(Change::DeleteFromColumn(DeleteFromColumn {
        family_name: "f".into(),
        column_qualifier: qualifier.to_vec().into(),
        time_range: None,
    }))
}

fn delete_row() -> v2::Mutation {
    mutation(Change::DeleteFromRow(DeleteFromRow {}))
}

/// Returns the number of cells of a row.
async fn cells(server: &Server, row: &str) -> usize {
    let rows = v2::RowSet { row_keys: vec![row.as_bytes().to_vec().into()], ..Default::default() };
    let request =
        v2::ReadRowsRequest { table_name: TABLE.into(), rows: Some(rows), ..Default::default() };
    let mut stream = server.client().await.read_rows(request).await.unwrap().into_inner();
    let mut cells = 0;
    while let Some(message) = stream.message().await.unwrap() {
        cells += message.chunks.len();
    }
    cells
}

/// Overwrites one row: each entry deletes something and sets a cell.
async fn overwrite(server: &Server, row: &str, count: i64, delete: fn() -> v2::Mutation) {
    const ENTRIES: i64 = 1000;
    let mut client = server.client().await;
    for from in (0..count).step_by(ENTRIES as usize) {
        let entry = |at: i64| Entry {
            row_key: row.as_bytes().to_vec().into(),
            mutations: vec![delete(), set(b"q", at * 1000)],
            ..Default::default()
        };
        let entries = (from..from + ENTRIES).map(entry).collect();
        let request =
            v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
        let mut stream = client.mutate_rows(request).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            for entry in message.entries {
                assert_eq!(entry.status.unwrap_or_default().code, 0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_sets_and_deletes_of_one_column_stop_nobody() {
    const COUNT: i64 = 25_000;
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &[]);
    overwrite(&server, "column", 1000, || delete_column(b"q")).await;
    overwrite(&server, "row", 1000, delete_row).await;
    let done = AtomicBool::new(false);
    let reader = async {
        let mut client = server.client().await;
        while !done.load(Ordering::Relaxed) {
            assert_eq!(cells(&server, "column").await, 1, "a delete and a set are one change");
            assert_eq!(cells(&server, "row").await, 1, "a delete and a set are one change");
            client.ping_and_warm(ping()).await.unwrap();
        }
    };
    let writers = async {
        tokio::join!(
            overwrite(&server, "column", COUNT, || delete_column(b"q")),
            overwrite(&server, "row", COUNT, delete_row),
        );
        done.store(true, Ordering::Relaxed);
    };
    let all = async { tokio::join!(writers, reader) };
    tokio::time::timeout(WATCHDOG, all).await.expect("writers and reader come to an end");

    assert!(server.terminate().status.success());
    let server = Server::with_data(dir.path(), &[]);
    assert_eq!((cells(&server, "column").await, cells(&server, "row").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_hundred_thousand_sets_and_deletes_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &[]);
    let pairs = (0..50_000u32).flat_map(|at| {
        let (kept, gone) = ([b'c', (at >> 8) as u8, at as u8], [b'd', (at >> 8) as u8, at as u8]);
        [set(&kept, 1000), delete_column(&gone)]
    });
    let request = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "row".into(),
        mutations: pairs.collect(),
        ..Default::default()
    };
    let mut client = server.client().await;
    let written = tokio::time::timeout(WATCHDOG, client.mutate_row(request)).await;
    written.expect("the request comes to an end").unwrap();
    assert_eq!(cells(&server, "row").await, 50_000);
    server.assert_healthy().await;
}
