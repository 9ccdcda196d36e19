//! The measurements, printed with their goals at full scale.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use stele_bigtable::Api;
use stele_bigtable_client::{Client, Options};
use stele_engine::Store as Engine;
use stele_engine::world::World;
use stele_tables::Tables;
use stele_traces::ingest::Files;
use stele_traces::store::{Commit, Entry, NewCommit, Put, TableSettings, Value, Window};
use stele_traces::{CommitIndex, Digest, Kind, Params, Query, Store};

use crate::data::{hash, path, results, write_files};
use crate::{Part, Scale};

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
        let api = Api::new(Tables::new(engine.clone()))?;
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
        Ok(Store::init(&self.client, table, TableSettings::default()).await?)
    }
}

fn report(what: &str, number: f64, unit: &str, goal: &str) {
    println!("{}", json!({"what": what, "number": number, "unit": unit, "goal": goal}));
}

pub async fn run(scale: &Scale) -> Result<()> {
    let files = scale.dir.join("files");
    if scale.parts.contains(&Part::Files) {
        std::fs::create_dir_all(&files).context("creating the directory for the files")?;
        report("results in files", write_files(scale, &files)? as f64, "", "");
    }
    if scale.parts.iter().all(|part| *part == Part::Files) {
        return Ok(());
    }
    let served = Served::open(&scale.dir.join("store"))?;
    for part in &scale.parts {
        match part {
            Part::Files => {}
            Part::Ingest => ingest(scale, &served, &files).await?,
            Part::Compact => weigh(scale, &served)?,
            Part::Tile => drop(tile(scale, &served).await?),
            Part::Query => query(scale, &served).await?,
            Part::History => history(scale, &served).await?,
            Part::Map => digest_map(scale, &served).await?,
        }
    }
    Ok(())
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

/// Ingests the next files like `stele traces ingest`.
async fn ingest(scale: &Scale, served: &Served, files: &Path) -> Result<()> {
    let store = served.store("tile").await?;
    let done = scale.dir.join("ingested");
    let first = match std::fs::read_to_string(&done) {
        Ok(text) => text.trim().parse()?,
        Err(_) => {
            register(&store, scale.commits).await?;
            0
        }
    };
    let last = scale.commits.min(first + scale.at_once.min(scale.commits));
    let paths = (first..last).map(|commit| path(files, commit)).collect();
    let started = Instant::now();
    let files = Files { paths, ..Files::default() };
    let ingested = files.ingest(&store, &mut |_| {}).await?;
    let seconds = started.elapsed().as_secs_f64();
    std::fs::write(&done, last.to_string())?;
    report(
        &format!("results ingested at commits {first} to {last}"),
        ingested.results as f64,
        "",
        "",
    );
    report("ingest from files", ingested.results as f64 / seconds, "results/s", "150,000");
    report("peak memory, client and server in one process", peak_mib(), "MiB", "");
    Ok(())
}

fn weigh(scale: &Scale, served: &Served) -> Result<()> {
    let started = Instant::now();
    served.compact()?;
    report("compaction", started.elapsed().as_secs_f64(), "s", "");
    let bytes = served.engine.stats().fragment_bytes as f64;
    report("bytes on disk per cell", bytes / results(scale) as f64, "B", "3 at most, better 2");
    Ok(())
}

fn window(scale: &Scale) -> Window {
    Window::Dense { count: scale.commits as usize, last: None }
}

/// Loads the whole tile and returns the seconds taken.
async fn tile(scale: &Scale, served: &Served) -> Result<f64> {
    let store = Store::open(&served.client, "tile").await?;
    let started = Instant::now();
    let grid = store.grid(Kind::Digests, window(scale), &Query::default()).await?;
    let whole = started.elapsed().as_secs_f64();
    anyhow::ensure!(
        grid.traces.len() == (scale.tests * scale.configs) as usize,
        "traces are missing"
    );
    let cells = grid.traces.len() * grid.columns.len();
    report("load of the dense tile", whole, "s", "15 for 25.6 M cells");
    report("cells of the tile", cells as f64, "", "");
    let goal = "2,048 for the client";
    report("peak memory, client and server in one process", peak_mib(), "MiB", goal);
    Ok(whole)
}

async fn query(scale: &Scale, served: &Served) -> Result<()> {
    let whole = tile(scale, served).await?;
    let store = Store::open(&served.client, "tile").await?;
    // One os in ten, one gpu in ten.
    let query: Query = "os=os-3&gpu=gpu-0".parse()?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        let grid = store.grid(Kind::Digests, window(scale), &query).await?;
        best = best.min(started.elapsed().as_secs_f64());
        anyhow::ensure!(grid.traces.len() == scale.tests as usize, "traces are missing");
    }
    report("query of 1 % of the traces", best * 1e3, "ms", "");
    report("whole tile over 1 % of it", whole / best, "times", "20");
    Ok(())
}

/// Measures the history of one trace over many tiles, each with many keys and values.
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
        let started = Instant::now();
        let found = store.history(&params).await?.context("trace not found")?;
        best = best.min(started.elapsed().as_secs_f64());
        anyhow::ensure!(found.digests.len() == scale.tiles as usize, "results are missing");
    }
    report("one trace over all tiles", best * 1e3, "ms", "20 for 100 tiles");
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
    let started = Instant::now();
    let known = fresh.load_digest_map().await?;
    report("load of the digest map", started.elapsed().as_secs_f64(), "s", "2 for 1 M digests");
    anyhow::ensure!(known == scale.digests, "digests are missing");
    let new = scale.digests / 10;
    let fresh = Store::open(&served.client, "map").await?;
    let put = put(1, scale.digests, new)?;
    let started = Instant::now();
    fresh.put(&[put]).await?;
    report("put of new digests, a tenth as many", started.elapsed().as_secs_f64(), "s", "");
    Ok(())
}

/// Returns the peak memory of this process in MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
