//! A service for a test, and a client that calls it within the process.

use std::path::Path;
use std::sync::Arc;

use stele_catalogue::client::{
    Client, Handle, NewRecord, RecordKey, Records, Step, Walk, WalkStart,
};
use stele_catalogue::proto::Code;
use stele_catalogue::{Catalogues, Fid, Server};
use stele_engine::world::World;
use stele_engine::{Options, Store};
use stele_tables::Tables;

pub struct Served {
    pub service: Arc<Catalogues>,
    pub client: Client,
    pub store: Arc<Store>,
    _dir: Option<tempfile::TempDir>,
}

impl Served {
    pub fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let served = Served::of(dir.path());
        Served { _dir: Some(dir), ..served }
    }

    pub fn of(dir: &Path) -> Served {
        Served::in_world(dir, World::real())
    }

    pub fn in_world(dir: &Path, world: World) -> Served {
        let mut options = Options::default();
        // These tests do not simulate power cuts.
        options.log.sync = false;
        let store = Arc::new(Store::open(dir, options, world).unwrap());
        let service = Arc::new(Catalogues::open(Tables::new(store.clone())).unwrap());
        let client = Client::in_process(Server::new(service.clone()).routes());
        Served { service, client, store, _dir: None }
    }

    /// Creates a catalogue with records `k000`, `k001`, ...
    pub async fn filled(&self, id: u128, records: usize) -> Handle {
        let fid = fid(id);
        assert_eq!(codes(self.client.create(&[fid], 0).await.unwrap().codes()), [Code::Ok]);
        let handle = self.client.catalogue(fid);
        if records > 0 {
            let records = (0..records).map(|n| record(&format!("k{n:03}"), &format!("v{n}")));
            handle.put(records.collect(), 0).await.unwrap();
        }
        handle
    }

    /// Flushes everything, so that records have locations.
    pub fn flush(&self) {
        for (table, _) in self.store.tables() {
            self.store.flush(table).unwrap();
        }
    }
}

pub fn fid(id: u128) -> Fid {
    Fid::of_id(1000 + id).unwrap()
}

pub fn codes(codes: impl Iterator<Item = Code>) -> Vec<Code> {
    codes.collect()
}

pub fn record(key: &str, value: &str) -> NewRecord {
    NewRecord::new(key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

pub fn key(key: &str) -> RecordKey {
    key.as_bytes().to_vec().into()
}

pub fn start(key: &str, count: u32) -> WalkStart {
    WalkStart::at(key.as_bytes().to_vec(), count)
}

pub fn from(starts: Vec<WalkStart>, flags: u32) -> Walk {
    Walk { starts, flags, ..Walk::default() }
}

/// Returns the keys of each start, and its code.
pub async fn groups(mut records: Records) -> Vec<(Vec<String>, Code)> {
    let (mut groups, mut keys) = (Vec::new(), Vec::new());
    while let Some(step) = records.next().await.unwrap() {
        match step {
            Step::Record { key, .. } => {
                keys.push(String::from_utf8(key.joined().to_vec()).unwrap());
            }
            Step::End { start, code, count } => {
                assert_eq!((start as usize, count), (groups.len(), keys.len() as u64));
                groups.push((std::mem::take(&mut keys), code));
            }
        }
    }
    groups
}

/// Returns the number of rows in the tables of records.
pub fn stored_records(served: &Served) -> usize {
    let store = &served.store;
    let mut rows = 0;
    for (table, name) in store.tables() {
        if name.starts_with("catalogue/records/") {
            store.read(table, stele_engine::ScanSpec::default(), |_| rows += 1).unwrap();
        }
    }
    rows
}
