//! The measurements, each beside what it should reach at full scale.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use stele_bigtable::Api;
use stele_bigtable::client::{Client, Options};
use stele_engine::Store as Engine;
use stele_engine::world::World;
use stele_traces::ingest::{self, Format};
use stele_traces::store::{Commit, Entry, NewCommit, Put, Settings, Value, Window};
use stele_traces::{CommitIndex, Digest, Kind, Params, Query, Store};
use tokio::sync::mpsc;

use crate::Scale;
use crate::data::{hash, write_files};

/// Results stored together, about.
const BATCH_ENTRIES: usize = 400_000;

struct Served {
    engine: Arc<Engine>,
    client: Client,
}

impl Served {
    fn open(dir: &Path) -> Result<Served> {
        let mut options = stele_engine::Options::default();
        options.memory.budget_bytes = 256 << 20;
        options.memory.cache_bytes = 512 << 20;
        options.flush.fragment_bytes = 64 << 20;
        let engine = Arc::new(Engine::open(dir, options, World::real())?);
        let api = Api::new(engine.clone())?;
        let options = Options::new("in process", "stele", "traces");
        Ok(Served { engine, client: Client::in_process(api.routes(), options) })
    }

    fn compact(&self) -> Result<()> {
        for (table, _) in self.engine.tables() {
            self.engine.flush(table)?;
            self.engine.compact(table)?;
        }
        Ok(())
    }

    async fn store(&self, table: &str) -> Result<Store> {
        Ok(Store::init(&self.client, table, Settings::default()).await?)
    }
}

fn tell(what: &str, number: f64, unit: &str, goal: &str) {
    println!("{}", json!({"what": what, "number": number, "unit": unit, "goal": goal}));
}

pub async fn run(scale: &Scale) -> Result<()> {
    let dir = tempfile::tempdir_in(&scale.dir).context("a directory for the data")?;
    let files = dir.path().join("files");
    std::fs::create_dir(&files)?;
    let (files, entries) = write_files(scale, &files)?;
    tell("results in files", entries as f64, "", "");
    let served = Served::open(&dir.path().join("store"))?;
    tile(scale, &served, files, entries).await?;
    history(scale, &served).await?;
    digest_map(scale, &served).await
}

async fn register(store: &Store, commits: u32) -> Result<()> {
    let commit = |at: u32| NewCommit {
        commit: Commit {
            hash: hash(at),
            author: "Ada <ada@example.org>".into(),
            time: 1_700_000_000 + i64::from(at),
            subject: format!("Change {at}"),
        },
        index: Some(CommitIndex(at)),
    };
    store.register(&(0..commits).map(commit).collect::<Vec<_>>()).await?;
    Ok(())
}

async fn tile(scale: &Scale, served: &Served, files: Vec<PathBuf>, entries: u64) -> Result<()> {
    let store = served.store("tile").await?;
    register(&store, scale.commits).await?;
    let begun = Instant::now();
    ingest_files(&store, files).await?;
    let seconds = begun.elapsed().as_secs_f64();
    tell("ingest from files", entries as f64 / seconds, "results/s", "150,000");

    let begun = Instant::now();
    served.compact()?;
    tell("compaction", begun.elapsed().as_secs_f64(), "s", "");
    let bytes = served.engine.stats().fragment_bytes as f64;
    tell("bytes on disk per cell", bytes / entries as f64, "B", "3 at most, better 2");

    let store = Store::open(&served.client, "tile").await?;
    let window = Window::Dense { count: scale.commits as usize, last: None };
    let begun = Instant::now();
    let grid = store.grid(Kind::Digests, window, &Query::default()).await?;
    let whole = begun.elapsed().as_secs_f64();
    anyhow::ensure!(
        grid.traces.len() == (scale.tests * scale.configs) as usize,
        "traces are missing"
    );
    let cells = grid.traces.len() * grid.columns.len();
    tell("load of the dense tile", whole, "s", "15 for 25.6 M cells");
    tell("cells of the tile", cells as f64, "", "");
    tell(
        "peak memory, client and server in one process",
        peak_mib(),
        "MiB",
        "2,048 for the client",
    );
    drop(grid);

    // One os in ten, one gpu in ten.
    let query: Query = "os=os-3&gpu=gpu-0".parse()?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let grid = store.grid(Kind::Digests, window, &query).await?;
        best = best.min(begun.elapsed().as_secs_f64());
        anyhow::ensure!(grid.traces.len() == scale.tests as usize, "traces are missing");
    }
    tell("query of 1 % of the traces", best * 1e3, "ms", "");
    tell("whole tile to 1 % of it", whole / best, "times", "20");
    Ok(())
}

/// Files are read in a thread while what was read is stored.
async fn ingest_files(store: &Store, files: Vec<PathBuf>) -> Result<()> {
    let (send, mut receive) = mpsc::channel::<Result<Vec<Put>>>(1);
    std::thread::spawn(move || {
        let (mut batch, mut entries) = (Vec::new(), 0);
        for file in files {
            let put = match read(&file) {
                Ok(put) => put,
                Err(error) => return drop(send.blocking_send(Err(error))),
            };
            entries += put.entries.len();
            batch.push(put);
            if entries >= BATCH_ENTRIES {
                let full = std::mem::take(&mut batch);
                entries = 0;
                if send.blocking_send(Ok(full)).is_err() {
                    return;
                }
            }
        }
        let _ = send.blocking_send(Ok(batch));
    });
    while let Some(puts) = receive.recv().await {
        store.put(&puts?).await?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Put> {
    let bytes = std::fs::read(file)?;
    let report = ingest::read(Format::Json, &bytes, &Params::default())?.pop();
    let report = report.context("a file holds one report")?;
    let commit = report.commit.context("a report names its commit")?;
    let time_micros = report.time_micros.unwrap_or_default();
    Ok(Put { commit, time_micros, entries: report.entries })
}

/// One trace over many tiles, each with many keys and values.
async fn history(scale: &Scale, served: &Served) -> Result<()> {
    let store = served.store("history").await?;
    let size = u32::from(store.settings().tile);
    register(&store, scale.tiles * size).await?;
    let entry = |test: u32, content: String| -> Result<Entry> {
        let params = Params::new([("name", format!("test-{test:04}")), ("os", "os-1".into())])?;
        let value = Value::Digest(Some(Digest::of(content.as_bytes())));
        Ok(Entry { params, value, options: Params::default() })
    };
    for tile in 0..scale.tiles {
        let entries = (0..1000).map(|test| entry(test, format!("{test} {}", tile / 7)));
        let entries = entries.collect::<Result<_>>()?;
        store.put(&[Put { commit: hash(tile * size), time_micros: 1, entries }]).await?;
    }
    served.compact()?;
    let params = Params::new([("name", "test-0500"), ("os", "os-1")])?;
    let mut best = f64::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        let found = store.history(&params).await?.context("the trace is there")?;
        best = best.min(begun.elapsed().as_secs_f64());
        anyhow::ensure!(found.digests.len() == scale.tiles as usize, "results are missing");
    }
    tell("one trace over all tiles", best * 1e3, "ms", "20 for 100 tiles");
    Ok(())
}

async fn digest_map(scale: &Scale, served: &Served) -> Result<()> {
    let store = served.store("map").await?;
    register(&store, 3).await?;
    let put = |commit: u32, from: usize, count: usize| -> Result<Put> {
        let entries = (from..from + count).map(|at| {
            let params = Params::new([
                ("name", (at % 1000).to_string()),
                ("part", (at / 1000).to_string()),
            ])?;
            let value = Value::Digest(Some(Digest::of(&at.to_le_bytes())));
            Ok(Entry { params, value, options: Params::default() })
        });
        Ok(Put { commit: hash(commit), time_micros: 1, entries: entries.collect::<Result<_>>()? })
    };
    store.put(&[put(0, 0, scale.digests)?]).await?;
    served.compact()?;
    let fresh = Store::open(&served.client, "map").await?;
    let begun = Instant::now();
    let known = fresh.load_digest_map().await?;
    tell("load of the digest map", begun.elapsed().as_secs_f64(), "s", "2 for 1 M digests");
    anyhow::ensure!(known == scale.digests, "digests are missing");
    let new = scale.digests / 10;
    let fresh = Store::open(&served.client, "map").await?;
    let put = put(1, scale.digests, new)?;
    let begun = Instant::now();
    fresh.put(&[put]).await?;
    tell("put of new digests, a tenth as many", begun.elapsed().as_secs_f64(), "s", "");
    Ok(())
}

/// The most memory that this process has had.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
