//! Every refusal has its status and its reason; nothing that a client sends panics.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::schema::{Family, Schema};
use stele_engine::{CommitBuilder, RowRange as Rows, TableId};
use stele_grpc::{Services, Transport};
use stele_tables_api::proto::tables_client::TablesClient;
use stele_tables_api::proto::*;
use stele_tables_api::{AllTables, Error, Native, ScanOptions, ServedTable, TableRules};
use tonic::{Code, Status};

use crate::fixture::{Served, TABLE, refusal};

const INVALID: Code = Code::InvalidArgument;

#[tokio::test]
async fn each_invalid_commit_is_refused_whole() {
    let served = Served::new();
    let packed = |reason: &str| (INVALID, reason.to_string());
    assert_eq!(
        refusal(served.apply_packed(Bytes::from_static(b"\xFFgarbage")).await),
        packed("INVALID_PACKED_FORMAT")
    );
    let disorder = served.apply_built(|commit| {
        commit.row(b"b").set(b"f", b"q", 0, b"v").row(b"a").set(b"f", b"q", 0, b"v");
    });
    assert_eq!(refusal(disorder.await), packed("CELL_DISORDER"));
    let invalid = async |build: &dyn Fn(&mut CommitBuilder)| {
        let refused = served.apply_built(|commit| {
            commit.row(b"a").set(b"f", b"q", 0, b"v");
            build(commit);
        });
        assert_eq!(refusal(refused.await), packed("INVALID_COMMIT"));
    };
    invalid(&|commit| {
        commit.row(b"b").mark(b"f", b"q", 0, b"v");
    })
    .await;
    invalid(&|commit| {
        commit.row(b"b").set(b"~hidden", b"q", 0, b"v");
    })
    .await;
    invalid(&|commit| {
        commit.row(&[b'x'; 5000]).set(b"f", b"q", 0, b"v");
    })
    .await;
    invalid(&|commit| {
        commit.table(TableId(9999)).row(b"b").delete_row();
    })
    .await;
    let empty_row = served.apply_built(|commit| {
        commit.row(b"").set(b"f", b"q", 0, b"v");
    });
    assert_eq!(refusal(empty_row.await), packed("INVALID_COMMIT"));
    let range = served.apply_built(|commit| {
        commit.delete_range(&Rows::all());
    });
    assert_eq!(refusal(range.await), packed("INVALID_COMMIT"));
    assert_eq!(refusal(served.apply_built(|_| ()).await), packed("INVALID_COMMIT"));
    let many = served.apply_built(|commit| {
        commit.row(b"r");
        (0..100_001).for_each(|_| {
            commit.set(b"f", b"q", 0, b"");
        });
    });
    assert_eq!(refusal(many.await), packed("INVALID_COMMIT"));
    let family = served.apply_built(|commit| {
        commit.row(b"b").set(b"no", b"q", 0, b"v");
    });
    assert_eq!(refusal(family.await), (Code::NotFound, "UNKNOWN_COLUMN_FAMILY".into()));
    let long = vec![0; 100 << 10];
    let long = served.apply_built(|commit| {
        commit.row(b"b").set(b"f", &long, 0, b"v");
    });
    assert_eq!(refusal(long.await), packed("TOO_LARGE"));
    let wait = ApplyRequest { wait: 77, ..served.apply_request() };
    assert_eq!(refusal(served.calls.clone().apply(wait).await), packed("INVALID_COMMIT"));
    let txn = ApplyRequest { commit_max_txn: Some(u64::MAX), ..served.apply_request() };
    assert_eq!(refusal(served.calls.clone().apply(txn).await), packed("INVALID_TXN"));
    assert!(served.keys(ScanOptions::all()).await.is_empty(), "nothing was applied");
}

#[tokio::test]
async fn each_invalid_scan_is_refused() {
    let served = Served::new();
    let refused = async |request: ScanRequest| refusal(served.scan(request).await);
    let request = || served.scan_request();
    let with = |predicate| ScanRequest { predicate: Some(predicate), ..served.scan_request() };
    let family = |name: &str| Predicate {
        families: vec![FamilyPredicate { family: name.into(), qualifiers: vec![] }],
        ..Predicate::default()
    };
    let invalid = (INVALID, "INVALID_SCAN".to_string());
    assert_eq!(refused(ScanRequest { isolation: 9, ..request() }).await, invalid);
    assert_eq!(refused(ScanRequest { view: 9, ..request() }).await, invalid);
    let both = ScanRequest {
        isolation: Isolation::Snapshot.into(),
        view: View::AllCommits.into(),
        ..request()
    };
    assert_eq!(refused(both).await, invalid);
    let times = Predicate { times: Some(TimeRange { min: 2, max: 1 }), ..Predicate::default() };
    assert_eq!(refused(with(times)).await, invalid);
    let unknown = (Code::NotFound, "UNKNOWN_COLUMN_FAMILY".to_string());
    assert_eq!(refused(with(family("no"))).await, unknown);
    assert_eq!(refused(with(family("~hidden"))).await, unknown);
    let many = Predicate { rows: vec![RowRange::default(); 20_000], ..Predicate::default() };
    assert_eq!(served.scan(with(many)).await.unwrap_err().code(), INVALID);
    let nothing = Predicate {
        rows: vec![RowRange { start: "b".into(), end: Some("a".into()) }],
        ..Predicate::default()
    };
    served.fill(["a", "b"]).await;
    let reply = served.scan(with(nothing)).await.unwrap();
    assert!(reply.cells.is_empty() && reply.done, "an empty range has no rows");
    assert_eq!(served.native.scanner_usage(), (0, 0));
}

#[tokio::test]
async fn each_invalid_handle_is_refused() {
    let served = Served::new();
    let open = |name: &str| {
        let (mut calls, table) = (served.calls.clone(), name.to_string());
        async move { calls.open(OpenRequest { table }).await.map(drop) }
    };
    let unknown = (Code::NotFound, "UNKNOWN_TABLE".to_string());
    assert_eq!(refusal(open("no").await), unknown);
    assert_eq!(refusal(open(&"x".repeat(100_000)).await), unknown);
    let first = served.fill(["a"]).await;
    assert!(first > 0);
    served.tables.drop_table(served.table_id()).unwrap();
    assert_eq!(refusal(served.scan(served.scan_request()).await), unknown);
    served.tables.create(TABLE, Schema::with_families([Family::new("f")]).unwrap()).unwrap();
    let stale = (Code::FailedPrecondition, "STALE_HANDLE".to_string());
    assert_eq!(refusal(served.scan(served.scan_request()).await), stale);
    assert_eq!(
        refusal(
            served
                .apply_built(|c| {
                    c.row(b"a").delete_row();
                })
                .await
        ),
        stale
    );
    let close = CloseRequest { table: TABLE.into(), table_id: served.id, scanner: 1 };
    assert_eq!(refusal(served.calls.clone().close(close).await), stale);
}

#[tokio::test]
async fn changed_and_cut_commits_never_panic() {
    let served = Served::new();
    let mut commit = CommitBuilder::new();
    commit.table(served.table_id()).row(b"a").set(b"f", b"q", 5, b"value").delete_family(b"g");
    commit.row(b"b").delete_row();
    let whole = commit.finish().bytes().to_vec();
    for end in 0..whole.len() {
        let cut = served.apply_packed(whole[..end].to_vec().into()).await;
        assert_eq!(cut.unwrap_err().code(), INVALID, "cut at {end}");
    }
    let mut applied = 0;
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            applied += usize::from(served.apply_packed(changed.into()).await.is_ok());
        }
    }
    assert!(applied > 0, "some changes are valid: other values and keys");
    served.scan(served.scan_request()).await.unwrap();
}

#[tokio::test]
async fn tablets_are_loaded_and_unloaded_and_the_schema_is_reloaded() {
    let served = Served::new();
    let mut calls = served.calls.clone();
    served.fill(["a"]).await;
    let rows = Some(RowRange::default());
    let unload = UnloadTabletsRequest { table: TABLE.into(), rows: rows.clone() };
    assert_eq!(calls.unload_tablets(unload.clone()).await.unwrap().into_inner().unloaded, 1);
    assert_eq!(calls.unload_tablets(unload).await.unwrap().into_inner().unloaded, 0);
    let refused = served.scan(served.scan_request()).await;
    assert_eq!(refusal(refused), (Code::FailedPrecondition, "TABLET_NOT_LOADED".into()));
    let load = LoadTabletsRequest { table: TABLE.into(), rows };
    assert_eq!(calls.load_tablets(load).await.unwrap().into_inner().loaded, 1);
    assert_eq!(served.keys(ScanOptions::all()).await, ["a"]);
    let empty = Some(RowRange { start: "b".into(), end: Some("a".into()) });
    let load = LoadTabletsRequest { table: TABLE.into(), rows: empty };
    assert_eq!(refusal(calls.load_tablets(load).await), (INVALID, "EMPTY_RANGE".into()));
    let before = served.table().await.opened().schema_version;
    let reload = ReloadSchemaRequest { table: TABLE.into() };
    assert_eq!(calls.reload_schema(reload).await.unwrap().into_inner().schema_version, before);
    let reload = ReloadSchemaRequest { table: "no".into() };
    assert_eq!(refusal(calls.reload_schema(reload).await).0, Code::NotFound);
}

/// Rules of tables whose schemas have become invalid.
struct InvalidSchemas(AllTables);

impl TableRules for InvalidSchemas {
    fn check_access(&self, extensions: &http::Extensions, table: &str) -> Result<(), Status> {
        self.0.check_access(extensions, table)
    }

    fn table(&self, name: &str) -> Result<ServedTable, Status> {
        self.0.table(name)
    }

    fn reload(&self, _: &str) -> Result<ServedTable, Status> {
        Err(Status::failed_precondition("the schema is invalid"))
    }
}

#[tokio::test]
async fn tablets_1_9_3_a_load_under_an_invalid_schema_is_refused_and_the_table_keeps_its_own() {
    let served = Served::new();
    let rules = Arc::new(InvalidSchemas(AllTables(served.tables.clone())));
    let native = Native::new(served.tables.clone(), rules).unwrap();
    let services = Services::default().with(native.service());
    let mut calls = TablesClient::new(Transport::InProcess(services));
    let rows = Some(RowRange::default());
    let unload = UnloadTabletsRequest { table: TABLE.into(), rows: rows.clone() };
    assert_eq!(calls.unload_tablets(unload).await.unwrap().into_inner().unloaded, 1);
    let load = LoadTabletsRequest { table: TABLE.into(), rows };
    let refused = calls.load_tablets(load.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let refused = served.scan(served.scan_request()).await;
    assert_eq!(refusal(refused), (Code::FailedPrecondition, "TABLET_NOT_LOADED".into()));
    let loaded = served.calls.clone().load_tablets(load).await.unwrap();
    assert_eq!(loaded.into_inner().loaded, 1, "it can be loaded once the schema is valid");
}

#[test]
fn rows_on_several_servers_are_a_failed_precondition() {
    let refused: Result<(), Status> = Err(Error::RowsOnSeveralServers.into());
    assert_eq!(refusal(refused), (Code::FailedPrecondition, "ROWS_ON_SEVERAL_SERVERS".into()));
}
