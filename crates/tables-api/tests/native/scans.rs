//! Scans: blocks, repeated blocks, scanners that expire, isolation, predicates.

use std::time::Duration;

use stele_tables_api::proto::*;
use stele_tables_api::{RowCommit, ScanOptions, ScannerLimits};
use tokio_stream::StreamExt;
use tonic::Code;

use crate::fixture::{Served, TABLE, key, refusal};

const ROWS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn one_cell(isolation: Isolation) -> ScanOptions {
    ScanOptions { block_cells: 1, isolation, ..ScanOptions::all() }
}

#[tokio::test]
async fn blocks_of_one_cell_and_of_one_byte_return_all_rows_once() {
    let served = Served::new();
    served.fill(ROWS).await;
    assert_eq!(served.keys(one_cell(Isolation::Row)).await, ROWS);
    let one_byte = ScanOptions { block_bytes: 1, ..ScanOptions::all() };
    assert_eq!(served.keys(one_byte).await, ROWS);
    let rows = served.table().await.scan(one_cell(Isolation::Any)).rows();
    let rows: Vec<_> = rows.map(|row| key(&row.unwrap())).collect().await;
    assert_eq!(rows, ROWS);
}

#[tokio::test]
async fn a_block_whose_answer_was_lost_is_repeated() {
    let served = Served::new();
    served.fill(ROWS).await;
    let first = served.scan(ScanRequest { max_cells: 1, ..served.scan_request() }).await.unwrap();
    assert_eq!((first.sequence, first.done), (1, false));
    assert_eq!(served.get(first.scanner, 1).await.unwrap(), first, "the first block, too");
    let second = served.get(first.scanner, 2).await.unwrap();
    assert_eq!(second.cells[0].row.as_ref().unwrap(), "b");
    // Changes in between do not change what is repeated.
    let table = served.table().await;
    table.apply(RowCommit::new().delete_row("b")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(served.get(first.scanner, 2).await.unwrap(), second);
    }
    let third = served.get(first.scanner, 3).await.unwrap();
    assert_eq!(third.cells[0].row.as_ref().unwrap(), "c");
    let sequence = (Code::InvalidArgument, "SCANNER_SEQUENCE".to_string());
    for wrong in [0, 1, 2, 5, u64::MAX] {
        assert_eq!(refusal(served.get(first.scanner, wrong).await), sequence, "{wrong}");
    }
    served.get(first.scanner, 4).await.unwrap();
    let mut last = served.get(first.scanner, 5).await.unwrap();
    let mut number = 5;
    while !last.done {
        number += 1;
        last = served.get(first.scanner, number).await.unwrap();
    }
    assert_eq!(served.get(first.scanner, number).await.unwrap(), last, "the last block, too");
    assert_eq!(refusal(served.get(first.scanner, number + 1).await), sequence);
}

#[tokio::test]
async fn a_closed_scanner_is_gone() {
    let served = Served::new();
    served.fill(ROWS).await;
    let request = || ScanRequest { max_cells: 1, ..served.scan_request() };
    let expired = (Code::Aborted, "SCANNER_EXPIRED".to_string());
    let first = served.scan(request()).await.unwrap();
    let close = CloseRequest { table: TABLE.into(), table_id: served.id, scanner: first.scanner };
    served.calls.clone().close(close.clone()).await.unwrap();
    served.calls.clone().close(close).await.unwrap();
    assert_eq!(refusal(served.get(first.scanner, 2).await), expired);
    let first = served.scan(request()).await.unwrap();
    let closing = GetRequest {
        scanner: first.scanner,
        sequence: 2,
        close: true,
        max_cells: 1,
        ..GetRequest::default()
    };
    assert_eq!(served.get_as(closing).await.unwrap().cells.len(), 1);
    assert_eq!(refusal(served.get(first.scanner, 3).await), expired);
    let once = served.scan(ScanRequest { close: true, ..request() }).await.unwrap();
    assert_eq!((once.scanner, once.done, once.cells.len()), (0, false, 1));
    assert_eq!(served.native.scanner_usage(), (0, 0));
}

#[tokio::test]
async fn the_least_recently_used_scanner_expires_and_its_reader_resumes() {
    let served = Served::with_limits(ScannerLimits { count_max: 2, ..ScannerLimits::default() });
    served.fill(ROWS).await;
    let table = served.table().await;
    let mut reader = table.scan(one_cell(Isolation::Row));
    assert_eq!(key(&reader.next().await.unwrap().unwrap()), "a");
    let open = async || {
        let request = ScanRequest { max_cells: 1, ..served.scan_request() };
        served.scan(request).await.unwrap().scanner
    };
    let (first, second) = (open().await, open().await);
    served.get(first, 2).await.unwrap();
    let third = open().await;
    let expired = (Code::Aborted, "SCANNER_EXPIRED".to_string());
    assert_eq!(refusal(served.get(second, 2).await), expired, "used less recently than the first");
    served.get(first, 3).await.unwrap();
    served.get(third, 2).await.unwrap();
    assert_eq!(served.native.scanner_usage().0, 2);
    let mut rest = Vec::new();
    while let Some(row) = reader.next().await.unwrap() {
        rest.push(key(&row));
        open().await;
        open().await;
    }
    assert_eq!(rest, ["b", "c", "d", "e"], "it resumes after each row");
}

#[tokio::test]
async fn the_memory_of_idle_scanners_is_bounded() {
    let limits = ScannerLimits { bytes_max: 100 << 10, ..ScannerLimits::default() };
    let served = Served::with_limits(limits);
    let mut commit = RowCommit::new();
    for row in 0..20 {
        commit.set(format!("{row:02}"), "f", "q", 0, vec![7; 10 << 10]);
    }
    served.table().await.apply(&commit).await.unwrap();
    let mut most = 0;
    for _ in 0..50 {
        let request = ScanRequest { max_bytes: 40 << 10, ..served.scan_request() };
        let reply = served.scan(request).await.unwrap();
        assert!(reply.cells.len() >= 2 && !reply.done);
        let (count, bytes) = served.native.scanner_usage();
        assert!(bytes <= limits.bytes_max, "{count} scanners hold {bytes} bytes");
        most = most.max(count);
    }
    assert!(most >= 1, "some are kept");
}

#[tokio::test]
async fn an_idle_scanner_expires() {
    let limits = ScannerLimits { idle_max: Duration::ZERO, ..ScannerLimits::default() };
    let served = Served::with_limits(limits);
    served.fill(ROWS).await;
    assert_eq!(served.keys(one_cell(Isolation::Row)).await, ROWS, "the reader resumes");
}

#[tokio::test]
async fn a_value_that_is_not_kept_is_read_again() {
    let served = Served::new();
    let mut commit = RowCommit::new();
    commit.set("a", "f", "q", 0, "small").set("b", "f", "q", 0, vec![1; 5 << 20]);
    commit.set("c", "f", "q", 0, "small");
    served.table().await.apply(&commit).await.unwrap();
    let first = served.scan(served.scan_request()).await.unwrap();
    assert_eq!(first.cells.len(), 1, "the long value has a block of its own");
    let second = served.get(first.scanner, 2).await.unwrap();
    assert_eq!(second.cells[0].value.len(), 5 << 20);
    let expired = (Code::Aborted, "SCANNER_EXPIRED".to_string());
    assert_eq!(refusal(served.get(first.scanner, 2).await), expired);
    assert_eq!(served.keys(ScanOptions::all()).await, ["a", "b", "c"]);
}

/// Reads the first of three columns of a row, changes the row, and reads the others.
async fn change_within_a_row(isolation: Isolation) -> Result<Vec<String>, (Code, String)> {
    let served = Served::new();
    let table = served.table().await;
    let write = async |value: &str| {
        let mut commit = RowCommit::new();
        for qualifier in ["1", "2", "3"] {
            commit.set("r", "f", qualifier, 0, value.to_string());
        }
        commit.set("z", "f", "1", 0, value.to_string());
        table.apply(&commit).await.unwrap();
    };
    write("old").await;
    let request =
        ScanRequest { max_cells: 1, isolation: isolation.into(), ..served.scan_request() };
    let mut reply = served.scan(request).await.unwrap();
    let scanner = reply.scanner;
    write("new").await;
    let mut values = Vec::new();
    loop {
        values
            .extend(reply.cells.iter().map(|cell| String::from_utf8(cell.value.to_vec()).unwrap()));
        if reply.done {
            return Ok(values);
        }
        reply = match served.get(scanner, reply.sequence + 1).await {
            Ok(reply) => reply,
            refused => return Err(refusal(refused)),
        };
    }
}

#[tokio::test]
async fn each_isolation_keeps_its_promise_when_a_row_changes_between_blocks() {
    let row = change_within_a_row(Isolation::Row).await;
    assert_eq!(row.unwrap(), ["old", "old", "old", "new"], "each row at one txn");
    let latest = change_within_a_row(Isolation::LatestRow).await;
    assert_eq!(latest.unwrap_err(), (Code::Aborted, "SCAN_CONFLICT".into()));
    let snapshot = change_within_a_row(Isolation::Snapshot).await;
    assert_eq!(snapshot.unwrap(), ["old"; 4], "all rows at one txn");
    assert_eq!(change_within_a_row(Isolation::Any).await.unwrap().len(), 4);
}

#[tokio::test]
async fn the_txn_of_a_scan_detects_later_changes_of_its_rows() {
    let served = Served::new();
    served.fill(["a"]).await;
    let table = served.table().await;
    let mut scan = table.scan(ScanOptions::all());
    while scan.next().await.unwrap().is_some() {}
    let txn = scan.txn().unwrap();
    served.fill(["b"]).await;
    let mut commit = RowCommit::new();
    commit.set("a", "f", "q", 0, "x").touch("b");
    assert!(table.apply_if(&commit, txn).await.is_err());
    let mut commit = RowCommit::new();
    commit.set("a", "f", "q", 0, "x");
    table.apply_if(&commit, txn).await.unwrap();
}

#[tokio::test]
async fn a_predicate_selects_rows_families_qualifiers_times_and_history() {
    let served = Served::new();
    let table = served.table().await;
    let mut commit = RowCommit::new();
    for row in ["a", "b"] {
        for family in ["f", "g"] {
            for qualifier in ["x", "y"] {
                for time in [1000, 2000, 3000] {
                    commit.set(row, family, qualifier, time, time.to_string());
                }
            }
        }
    }
    table.apply(&commit).await.unwrap();
    let cells = async |predicate: Predicate| {
        let mut scan = table.scan(ScanOptions { predicate, ..ScanOptions::default() });
        let mut cells = Vec::new();
        while let Some(row) = scan.next().await.unwrap() {
            for cell in &row.cells {
                let name = [&row.key[..], b" ", &cell.family, b" ", &cell.qualifier].concat();
                cells.push(format!("{} {}", String::from_utf8(name).unwrap(), cell.timestamp));
            }
        }
        cells
    };
    assert_eq!(cells(Predicate::default()).await.len(), 24);
    let selected = Predicate {
        rows: vec![RowRange { start: "b".into(), end: None }],
        families: vec![FamilyPredicate {
            family: "g".into(),
            qualifiers: vec![QualifierRange { start: "y".into(), end: None }],
        }],
        times: Some(TimeRange { min: 0, max: 2000 }),
        max_history: 0,
    };
    assert_eq!(cells(selected.clone()).await, ["b g y 2000", "b g y 1000"]);
    assert_eq!(cells(Predicate { max_history: 1, ..selected }).await, ["b g y 2000"]);
    let newest = Predicate { max_history: 1, ..Predicate::default() };
    assert_eq!(cells(newest).await.len(), 8);
}
