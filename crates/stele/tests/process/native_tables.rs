//! The native API of rows on a real server: it agrees with the Bigtable API, accepts only
//! cells that the Bigtable API accepts, and loses nothing that it acknowledged when the
//! server is killed.

#[path = "../../../tables-api/examples/accounts/bank.rs"]
mod bank;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use stele_bigtable::Api;
use stele_bigtable::proto::admin;
use stele_bigtable::table::{Definition, Family, Granularity};
use stele_bigtable_client::{Client, Options, Query};
use stele_engine::world::World;
use stele_tables::Tables;
use stele_tables_api::proto::{FamilyPredicate, Isolation, Predicate};
use stele_tables_api::{RowCommit, ScanOptions, Table, TableClient, TableError};
use tonic::Code;

use crate::support::{Server, TABLE, make_table, until};

async fn native(server: &Server) -> Table {
    native_at(&server.address("grpc")).await
}

async fn native_at(address: &str) -> Table {
    let client = TableClient::connect(address, &Default::default()).await.unwrap();
    client.open(TABLE).await.unwrap()
}

async fn bigtable(server: &Server) -> stele_bigtable_client::Table {
    let options = Options::new(server.address("grpc"), "p", "i");
    Client::connect(options).await.unwrap().table("t").unwrap()
}

/// Returns all cells that both APIs return, as text.
async fn native_cells(table: &Table, options: ScanOptions) -> Vec<String> {
    let mut scan = table.scan(options);
    let mut cells = Vec::new();
    while let Some(row) = scan.next().await.unwrap() {
        for cell in &row.cells {
            let family = String::from_utf8(cell.family.to_vec()).unwrap();
            cells.push(text(&row.key, &family, &cell.qualifier, cell.timestamp, &cell.value));
        }
    }
    cells
}

async fn bigtable_cells(table: &stele_bigtable_client::Table) -> Vec<String> {
    let mut cells = Vec::new();
    for row in table.read_rows(Query::all()).collect().await.unwrap() {
        for cell in &row.cells {
            let time = cell.timestamp_micros;
            cells.push(text(&row.key, &cell.family, &cell.qualifier, time, &cell.value));
        }
    }
    cells
}

fn text(row: &[u8], family: &str, qualifier: &[u8], time: i64, value: &[u8]) -> String {
    let (row, qualifier, value) = (row.escape_ascii(), qualifier.escape_ascii(), value.len());
    format!("{row} {family}:{qualifier} @{time} {value}")
}

/// Creates a table with two families of bytes and one that sums.
fn make_typed_table(dir: &Path) {
    let tables = Tables::open(dir, stele_engine::Options::default(), World::real()).unwrap();
    let family = |value_type: Option<admin::Type>| Family { value_type, ..Family::default() };
    let families = [
        ("f".to_string(), family(None)),
        ("g".to_string(), family(None)),
        ("sum".to_string(), family(Some(sum_type()))),
    ];
    let definition = Definition {
        families: families.into(),
        granularity: Granularity::Millis,
        ..Definition::default()
    };
    Api::new(tables).unwrap().tables().create(TABLE, definition).unwrap();
}

fn sum_type() -> admin::Type {
    use admin::r#type::aggregate::{Aggregator, Sum};
    use admin::r#type::{Aggregate, Kind};
    let aggregator = Some(Aggregator::Sum(Sum {}));
    let aggregate = Aggregate { aggregator, ..Aggregate::default() };
    admin::Type { kind: Some(Kind::AggregateType(Box::new(aggregate))) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_scan_returns_the_cells_of_read_rows() {
    let dir = tempfile::tempdir().unwrap();
    make_typed_table(dir.path());
    let server = Server::with_data(dir.path(), &["--http-port", "off", "--log", "warn"]);
    let (native, bigtable) = (native(&server).await, bigtable(&server).await);
    // A fixed sequence of pseudo-random commits.
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..60 {
        let mut commit = RowCommit::new();
        for _ in 0..=next(8) {
            let row = format!("row {:02}", next(30));
            let family = ["f", "g"][next(2) as usize];
            let qualifier = format!("q{}\0", next(4));
            match next(8) {
                0 => {
                    commit.delete_row(row);
                }
                1 => {
                    commit.delete_family(row, family);
                }
                2 => {
                    commit.delete_column(row, family, qualifier);
                }
                3 => {
                    commit.add(row, "sum", qualifier, 0, next(100) as i64);
                }
                _ => {
                    let (time, length) = (next(5) as i64 * 1000, next(3000) as usize);
                    commit.set(row, family, qualifier, time, vec![7; length]);
                }
            }
        }
        native.apply(&commit).await.unwrap();
    }
    let expected = bigtable_cells(&bigtable).await;
    assert!(expected.len() > 50, "{}", expected.len());
    assert!(expected.iter().any(|cell| cell.contains("sum:")));
    for isolation in [Isolation::Any, Isolation::Row, Isolation::LatestRow, Isolation::Snapshot] {
        for block_cells in [0, 1, 7] {
            let options = ScanOptions { isolation, block_cells, ..ScanOptions::all() };
            assert_eq!(native_cells(&native, options).await, expected, "{isolation:?}");
        }
    }
    let family = FamilyPredicate { family: "g".into(), qualifiers: vec![] };
    let predicate = Predicate { families: vec![family], ..Predicate::default() };
    let of_family: Vec<_> = expected.into_iter().filter(|cell| cell.contains(" g:")).collect();
    let options = ScanOptions { predicate, ..ScanOptions::all() };
    assert_eq!(native_cells(&native, options).await, of_family);
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_that_the_bigtable_api_refuses_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    make_typed_table(dir.path());
    let server = Server::with_data(dir.path(), &["--http-port", "off", "--log", "warn"]);
    let table = native(&server).await;
    let refused = async |build: &dyn Fn(&mut RowCommit)| {
        let mut commit = RowCommit::new();
        commit.set("other", "f", "q", 0, "v");
        build(&mut commit);
        let error = table.apply(&commit).await.unwrap_err();
        assert!(matches!(error, TableError::Refused(_)), "{error}");
        assert_eq!(error.status().code(), Code::InvalidArgument, "{error}");
    };
    refused(&|commit| {
        commit.set("r", "sum", "q", 0, vec![0; 8]);
    })
    .await;
    refused(&|commit| {
        commit.add("r", "f", "q", 0, 1);
    })
    .await;
    refused(&|commit| {
        commit.set("r", "f", "q", 1, "v");
    })
    .await;
    refused(&|commit| {
        commit.set("r", "f", "q", -1, "v");
    })
    .await;
    refused(&|commit| {
        commit.set("r", "f", vec![0; 20 << 10], 0, "v");
    })
    .await;
    assert!(native_cells(&table, ScanOptions::all()).await.is_empty());
    let client = TableClient::connect(&server.address("grpc"), &Default::default()).await.unwrap();
    let code = async |name: &str| client.open(name).await.err().unwrap().status().code();
    assert_eq!(code("projects/p/instances/i/tables/no").await, Code::NotFound);
    assert_eq!(code("projects/stele-system/instances/i/tables/t").await, Code::PermissionDenied);
    assert_ne!(code("catalogue/registry").await, Code::Ok, "only tables of the Bigtable API");
}

const ACCOUNTS: usize = 6;
const BALANCE: i64 = 100;
const TRANSFERS_AT_A_TIME: usize = 4;
const KILLS: usize = 4;
const TRANSFERS_PER_LIFE: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn transfers_between_accounts_survive_kill_9_and_the_total_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let args = ["--http-port", "off", "--log", "warn"];
    let mut server = Some(Server::with_data(dir.path(), &args));
    let address = server.as_ref().unwrap().address("grpc");
    let port = address.rsplit_once(':').unwrap().1.to_string();
    let table = native_at(&address).await;
    bank::create(&table, ACCOUNTS, BALANCE).await.unwrap();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let (answered, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..TRANSFERS_AT_A_TIME)
        .map(|task| {
            let (table, acknowledged) = (table.clone(), acknowledged.clone());
            let (answered, enough) = (answered.clone(), enough.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    if enough.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    let name = format!("{task}-{number:06}");
                    let (from, to) = ((number + task) % ACCOUNTS, (number * 5 + 1) % ACCOUNTS);
                    let amount = 1 + (number % 9) as i64;
                    let outcome = bank::transfer(&table, &name, from, to, amount).await.unwrap();
                    if outcome == bank::Outcome::Moved {
                        acknowledged.lock().unwrap().insert(name);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..KILLS {
        let goal = answered.load(Ordering::Relaxed) + TRANSFERS_PER_LIFE;
        until("transfers are answered", || answered.load(Ordering::Relaxed) >= goal).await;
        // In the middle of other transfers.
        server.take().unwrap().kill();
        let again = [&["--grpc-port", &port][..], &args].concat();
        let data = ["--data", dir.path().to_str().unwrap()];
        server = Some(Server::start(&[&data[..], &again].concat()));
        let ledger = bank::ledger(&table).await;
        // The snapshot of a scan is lost with its server, but not here: the server is up.
        assert_eq!(ledger.unwrap().total, ACCOUNTS as i64 * BALANCE);
    }
    enough.store(1, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let ledger = bank::ledger(&table).await.unwrap();
    assert_eq!((ledger.total, ledger.accounts), (ACCOUNTS as i64 * BALANCE, ACCOUNTS));
    let found: BTreeSet<_> = ledger.transfers.into_iter().collect();
    let acknowledged = acknowledged.lock().unwrap();
    assert!(acknowledged.is_subset(&found), "lost: {:?}", acknowledged.difference(&found));
    assert!(acknowledged.len() >= KILLS, "{}", acknowledged.len());
}
