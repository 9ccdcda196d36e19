//! An in-process store, and helpers to write and compare results.

use std::collections::BTreeMap;

use stele_bigtable::Api;
use stele_bigtable_client::{Client, Options};
use stele_engine::world::World;
use stele_tables::Tables;
use stele_traces::store::{
    Cells, Commit, Entry, Grid, NewCommit, Put, TableSettings, Value, Window,
};
use stele_traces::{CommitIndex, Digest, Kind, Params, Query, Store};
use tonic::service::Routes;

/// A time in 2019, in microseconds.
pub const NOON: i64 = 1_560_340_800_000_000;

pub struct Served {
    pub api: Api,
    _dir: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let options = stele_engine::Options::default();
        let tables = Tables::open(dir.path(), options, World::real()).unwrap();
        Served { api: Api::new(tables).unwrap(), _dir: dir }
    }

    pub fn client(&self) -> Client {
        client(self.api.routes())
    }

    /// Creates a table of traces with this many commits.
    pub async fn store(&self, commits: u32) -> Store {
        let store = Store::init(&self.client(), "t", TableSettings::default()).await.unwrap();
        register(&store, commits).await;
        store
    }

    /// Opens the same table as another process would.
    pub async fn again(&self) -> Store {
        Store::open(&self.client(), "t").await.unwrap()
    }
}

pub fn client(routes: Routes) -> Client {
    Client::in_process(routes, Options::new("in process", "stele", "traces"))
}

pub fn hash(index: u32) -> String {
    format!("{:040x}", u64::from(index) + 0xabc0_0000)
}

pub async fn register(store: &Store, commits: u32) {
    let commits: Vec<_> = (0..commits)
        .map(|index| NewCommit {
            commit: Commit {
                hash: hash(index),
                author: format!("author{}@example.org", index % 3),
                time: NOON / 1_000_000 + i64::from(index) * 60,
                subject: format!("change {index}"),
            },
            index: Some(CommitIndex(index)),
        })
        .collect();
    store.register(&commits).await.unwrap();
}

pub fn params(text: &str) -> Params {
    Params::parse(text).unwrap()
}

/// Returns a digest identified by a short name.
pub fn digest(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

pub fn entry(id: &str, name: &str) -> Entry {
    let value = Value::Digest((!name.is_empty()).then(|| digest(name)));
    Entry { params: params(id), value, options: Params::default() }
}

pub fn number(id: &str, value: f64) -> Entry {
    let value = Value::Number(Some(value));
    Entry { params: params(id), value, options: Params::default() }
}

pub fn put_at(index: u32, time_micros: i64, entries: Vec<Entry>) -> Put {
    Put { commit: hash(index), time_micros, entries }
}

pub async fn put(store: &Store, index: u32, entries: Vec<Entry>) {
    store.put(&[put_at(index, NOON, entries)]).await.unwrap();
}

pub fn range(first: u32, last: u32) -> Window {
    Window::Range { first: CommitIndex(first), last: CommitIndex(last) }
}

pub fn dense(count: usize) -> Window {
    Window::Dense { count, last: None }
}

pub fn query(text: &str) -> Query {
    text.parse().unwrap()
}

/// Formats a grid of digests: ids with a name for each cell, `-` if missing. Names are
/// looked up among those given.
pub fn formatted(grid: &Grid, names: &[&str]) -> BTreeMap<String, String> {
    let names: BTreeMap<Digest, &str> = names.iter().map(|name| (digest(name), *name)).collect();
    let cell = |number: &u32| match number {
        0 => "-",
        number => names.get(&grid.digests[*number as usize - 1]).copied().unwrap_or("?"),
    };
    let cells = |cells: &Cells| match cells {
        Cells::Digests(cells) => cells.iter().map(cell).collect::<Vec<_>>().join(""),
        Cells::Numbers(cells) => format!("{cells:?}"),
    };
    grid.traces.iter().map(|trace| (trace.params.id(), cells(&trace.cells))).collect()
}

pub async fn digests(store: &Store, window: Window, text: &str) -> Grid {
    store.grid(Kind::Digests, window, &query(text)).await.unwrap()
}

pub fn expect<const N: usize>(traces: [(&str, &str); N]) -> BTreeMap<String, String> {
    traces.map(|(id, cells)| (id.to_string(), cells.to_string())).into()
}

pub fn columns(grid: &Grid) -> Vec<u32> {
    grid.columns.iter().map(|index| index.0).collect()
}
