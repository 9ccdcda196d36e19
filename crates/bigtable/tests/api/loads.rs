//! Rows of tablets that are unloaded or being loaded, as clients see them.

use std::path::Path;
use std::sync::Arc;

use stele_bigtable::Api;
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_bigtable::proto::v2::mutate_rows_request::Entry;
use stele_bigtable::proto::v2::read_modify_write_rule::Rule;
use stele_bigtable::table::Definition;
use stele_engine::config::MANIFEST_FILE;
use stele_engine::world::sim::{Operation, SimFiles};
use stele_engine::world::{ManualClock, SeededRandom, Threads, World};
use stele_engine::{Options, RowRange, TableId};
use stele_tables::Tables;
use tonic::{Code, Status};

use crate::data_calls::*;

/// A table of three tablets, which meet at rows `h` and `p`, on a simulated disk.
struct Served {
    sim: SimFiles,
    tables: Tables,
    table: TableId,
    api: Api,
}

impl Served {
    fn new() -> Served {
        let sim = SimFiles::new(1);
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(sim.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: Some(Arc::new(Threads)),
        };
        let tables = Tables::open(Path::new("/store"), Options::default(), world).unwrap();
        let api = Api::new(tables.clone()).unwrap();
        let splits = vec![b"h".to_vec(), b"p".to_vec()];
        let table = api.tables().create(TABLE, Definition { splits, ..definition() }).unwrap();
        Served { sim, tables, table: table.id, api }
    }

    fn client(&self) -> Client {
        BigtableClient::new(self.api.routes())
    }

    fn unload(&self, row: &str) {
        assert_eq!(self.tables.unload(self.table, &RowRange::row(row.as_bytes())).unwrap(), 1);
    }
}

fn value(value: &str) -> Vec<v2::Mutation> {
    vec![set("f", "q", 1000, value)]
}

fn append(key: &str) -> v2::ReadModifyWriteRowRequest {
    v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: key.as_bytes().to_vec().into(),
        rules: vec![v2::ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: "q".into(),
            rule: Some(Rule::AppendValue("+".into())),
        }],
        ..Default::default()
    }
}

fn check_and_set(key: &str) -> v2::CheckAndMutateRowRequest {
    v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: key.as_bytes().to_vec().into(),
        true_mutations: value("checked"),
        ..Default::default()
    }
}

fn one_row(key: &str) -> v2::ReadRowsRequest {
    let rows = v2::RowSet { row_keys: vec![key.as_bytes().to_vec().into()], row_ranges: vec![] };
    v2::ReadRowsRequest { rows: Some(rows), ..all() }
}

/// Returns the code of each entry of a bulk request that sets these rows.
async fn bulk(client: &mut Client, keys: &[&str]) -> Vec<Code> {
    let entry = |key: &&str| Entry {
        row_key: key.as_bytes().to_vec().into(),
        mutations: value("bulk"),
        ..Default::default()
    };
    let entries = keys.iter().map(entry).collect();
    let request = v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
    let mut stream = client.mutate_rows(request).await.unwrap().into_inner();
    let mut codes = vec![Code::Unknown; keys.len()];
    while let Some(message) = stream.message().await.unwrap() {
        for entry in message.entries {
            codes[entry.index as usize] = Code::from_i32(entry.status.unwrap().code);
        }
    }
    codes
}

fn is_unloaded<T: std::fmt::Debug>(outcome: Result<T, Status>) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("was unloaded by an operator"), "{status:?}");
}

#[tokio::test]
async fn scale_7_6_calls_for_an_unloaded_tablet_fail_and_all_others_do_not_notice() {
    let served = Served::new();
    let mut client = served.client();
    for key in ["a", "k", "z"] {
        write(&mut client, key, value(key)).await;
    }
    served.unload("k");
    is_unloaded(client.mutate_row(mutate("k", value("x"))).await);
    is_unloaded(client.read_modify_write_row(append("k")).await);
    is_unloaded(client.check_and_mutate_row(check_and_set("k")).await);
    is_unloaded(read(&mut client, one_row("k")).await);
    is_unloaded(read(&mut client, all()).await);
    // A failing entry does not affect the others, whatever their order.
    let refused = Code::FailedPrecondition;
    let codes = bulk(&mut client, &["z", "k", "a", "i", "b"]).await;
    assert_eq!(codes, [Code::Ok, refused, Code::Ok, refused, Code::Ok]);
    client.read_modify_write_row(append("a")).await.unwrap();
    client.check_and_mutate_row(check_and_set("z")).await.unwrap();
    let sampled = v2::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    client.sample_row_keys(sampled).await.unwrap();
    served.tables.load(served.table, &RowRange::all()).unwrap();
    let rows = read_all(&mut client).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "b", "k", "z"]);
    assert_eq!(rows["k"], ["f:q@1000=k"], "nothing reached the unloaded row");
    assert_eq!(rows["z"], ["f:q@1000=checked"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_7_6_calls_for_a_loading_tablet_wait_until_it_is_loaded() {
    let served = Served::new();
    let mut client = served.client();
    for key in ["a", "k", "z"] {
        write(&mut client, key, value(key)).await;
    }
    served.unload("k");
    let held = served.sim.hold(Operation::Write, MANIFEST_FILE, "loader");
    let (tables, table) = (served.tables.clone(), served.table);
    let loader = std::thread::Builder::new().name("loader".into());
    let load = loader.spawn(move || tables.load(table, &RowRange::all())).unwrap();
    held.wait_until_waiting();
    let calls = (
        tokio::spawn({
            let mut client = served.client();
            async move { read(&mut client, all()).await }
        }),
        tokio::spawn({
            let mut client = served.client();
            async move { read(&mut client, one_row("k")).await }
        }),
        tokio::spawn({
            let mut client = served.client();
            async move { client.read_modify_write_row(append("i")).await }
        }),
        tokio::spawn({
            let mut client = served.client();
            async move { bulk(&mut client, &["b", "j", "y"]).await }
        }),
    );
    // Other rows are served meanwhile.
    write(&mut client, "c", value("c")).await;
    assert_eq!(read(&mut client, one_row("a")).await.unwrap().len(), 1);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!calls.0.is_finished() && !calls.1.is_finished());
    assert!(!calls.2.is_finished() && !calls.3.is_finished());
    drop(held);
    load.join().unwrap().unwrap();
    let rows = calls.0.await.unwrap().unwrap();
    assert!(rows.len() >= 3 && rows.iter().any(|(key, _)| key == "k"), "{rows:?}");
    assert_eq!(calls.1.await.unwrap().unwrap().len(), 1);
    calls.2.await.unwrap().unwrap();
    assert_eq!(calls.3.await.unwrap(), [Code::Ok; 3]);
    assert_eq!(read_all(&mut client).await.len(), 8);
}
