//! What a scan notices of changes of the tablets: nothing of splits, joins, flushes and
//! compactions, because each block uses the newest version of the table; and an error at the
//! first row of a tablet that was unloaded.

use stele_engine::RowRange;
use stele_tables_api::proto::{Isolation, UnloadTabletsRequest};
use stele_tables_api::{ScanOptions, TableError};

use crate::fixture::{Served, TABLE, key};

fn names() -> Vec<String> {
    (0..40).map(|number| format!("{number:02}")).collect()
}

async fn filled() -> Served {
    let served = Served::new();
    served.fill(names().iter().map(String::as_str)).await;
    served
}

fn blocks(isolation: Isolation) -> ScanOptions {
    ScanOptions { block_cells: 1, isolation, ..ScanOptions::all() }
}

#[tokio::test]
async fn events_1_14_a_scan_crosses_splits_and_joins_unharmed() {
    for isolation in [Isolation::Any, Isolation::Row, Isolation::LatestRow, Isolation::Snapshot] {
        let served = filled().await;
        let (tables, id) = (&served.tables, served.table_id());
        let mut scan = served.table().await.scan(blocks(isolation));
        let mut seen = Vec::new();
        let mut splits = 0;
        while let Some(row) = scan.next().await.unwrap() {
            seen.push(key(&row));
            let at = seen.len();
            // Before, at and after the position of the scan.
            for row in [at.saturating_sub(3), at, at + 5] {
                splits += usize::from(tables.split(id, format!("{row:02}").as_bytes()).unwrap());
            }
            if at % 3 == 0 {
                let starts = tables.tablets(id).unwrap();
                for tablet in starts.iter().skip(1).step_by(2) {
                    tables.join(id, &tablet.rows.start).unwrap();
                }
            }
            match at % 5 {
                0 => tables.flush(id).unwrap(),
                1 => drop(tables.compact_tablet(id, b"20").unwrap()),
                _ => {}
            }
        }
        assert_eq!(seen, names(), "{isolation:?}");
        assert!(splits > 20, "{splits}");
    }
}

#[tokio::test]
async fn events_1_14_a_scan_ends_at_a_tablet_that_was_unloaded_and_resumes_when_it_is_loaded() {
    let served = filled().await;
    let (tables, id) = (&served.tables, served.table_id());
    tables.split(id, b"20").unwrap();
    tables.split(id, b"30").unwrap();
    let mut scan = served.table().await.scan(blocks(Isolation::Row));
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(key(&scan.next().await.unwrap().unwrap()));
    }
    let rows =
        Some(stele_tables_api::proto::RowRange { start: "20".into(), end: Some("30".into()) });
    let unload = UnloadTabletsRequest { table: TABLE.into(), rows };
    served.calls.clone().unload_tablets(unload).await.unwrap();
    let ended = loop {
        match scan.next().await {
            Ok(row) => seen.push(key(&row.expect("the scan does not end there"))),
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, TableError::NotLoaded(_)), "{ended}");
    assert_eq!(seen, names()[..20], "all rows before it are returned");
    let again = scan.next().await.unwrap_err();
    assert!(matches!(again, TableError::NotLoaded(_)), "{again}");
    tables.load(id, &RowRange::all()).unwrap();
    while let Some(row) = scan.next().await.unwrap() {
        seen.push(key(&row));
    }
    assert_eq!(seen, names());
}

#[tokio::test]
async fn events_1_14_a_scan_inside_a_tablet_ends_when_that_tablet_is_unloaded() {
    let served = filled().await;
    let (tables, id) = (&served.tables, served.table_id());
    let mut scan = served.table().await.scan(blocks(Isolation::Row));
    assert_eq!(key(&scan.next().await.unwrap().unwrap()), "00");
    tables.unload(id, &RowRange::all()).unwrap();
    let ended = scan.next().await.unwrap_err();
    assert!(matches!(ended, TableError::NotLoaded(_)), "{ended}");
    assert_eq!(served.native.scanner_usage(), (0, 0), "the server keeps nothing of it");
}
