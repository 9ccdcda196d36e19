//! Requests while the tables of the catalogues are unloaded or being loaded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_catalogue::client::Handle;
use stele_catalogue::proto::Code;
use stele_engine::config::MANIFEST_FILE;
use stele_engine::world::World;
use stele_engine::world::sim::{Operation, SimFiles};
use stele_engine::{RowRange, TableId};

use super::served::*;

/// Returns a service on a simulated disk.
fn served(sim: &SimFiles) -> Served {
    let world = World { files: Arc::new(sim.clone()), ..World::real() };
    Served::in_world(Path::new("/store"), world)
}

/// Finds the table with the records of a catalogue, and leaves it unloaded.
async fn unload_records(served: &Served, catalogue: &Handle) -> TableId {
    for (table, name) in served.store.tables() {
        if !name.starts_with("catalogue/records/") {
            continue;
        }
        served.store.unload(table, &[RowRange::all()]).unwrap();
        if let Err(refused) = catalogue.get(vec![key("k001")], 0, 0).await {
            assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
            return table;
        }
        served.store.load(table, &[RowRange::all()]).unwrap();
    }
    panic!("records can be read without a table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_7_6_requests_wait_while_a_table_is_being_loaded() {
    let sim = SimFiles::new(1);
    let served = served(&sim);
    let catalogue = served.filled(1, 3).await;
    let table = unload_records(&served, &catalogue).await;
    let refused = catalogue.put(vec![record("k009", "v9")], 0).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");

    let held = sim.hold(Operation::Write, MANIFEST_FILE, "loader");
    let store = served.store.clone();
    let load = move || store.load(table, &[RowRange::all()]);
    let loader = std::thread::Builder::new().name("loader".into()).spawn(load).unwrap();
    held.wait_until_waiting();
    let (read, written) = (catalogue.clone(), catalogue.clone());
    let read = tokio::spawn(async move { read.get_one("k001").await });
    let written = tokio::spawn(async move { written.put(vec![record("k009", "v9")], 0).await });
    // Requests that do not wait fail meanwhile.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(held);
    let loaded = tokio::task::spawn_blocking(move || loader.join().unwrap()).await.unwrap();
    assert_eq!(loaded.unwrap(), 1);
    assert!(read.await.unwrap().unwrap().is_some());
    assert_eq!(codes(written.await.unwrap().unwrap().codes()), [Code::Ok]);
}
