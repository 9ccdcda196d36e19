//! Benchmarks traces at scale on one machine: results from a seeded generator are
//! written to files, ingested from them, compacted, and read back. Prints one line of
//! JSON for each measurement.

mod data;
mod measure;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmark traces.
#[derive(Parser, Clone)]
pub struct Scale {
    /// What to measure, in this order; everything if omitted.
    #[arg(value_enum)]
    pub parts: Vec<Part>,
    #[arg(long, default_value_t = 1000)]
    pub tests: u32,
    #[arg(long, default_value_t = 100)]
    pub configs: u32,
    #[arg(long, default_value_t = 256)]
    pub commits: u32,
    /// Number of digests in the digest map.
    #[arg(long, default_value_t = 1_000_000)]
    pub digests: usize,
    /// Number of tiles in the history of one trace.
    #[arg(long, default_value_t = 100)]
    pub tiles: u32,
    /// Number of commits to ingest in this run; the next run continues there.
    #[arg(long, default_value_t = u32::MAX)]
    pub at_once: u32,
    /// Directory for files and stores, reused by later parts.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Write the files.
    Files,
    /// Ingest them.
    Ingest,
    /// Compact the store and measure its size.
    Compact,
    /// Load the whole tile.
    Tile,
    /// Query one trace in a hundred.
    Query,
    /// Read the history of one trace over many tiles.
    History,
    /// Load the digest map, and add to it.
    Map,
}

fn main() -> anyhow::Result<()> {
    let mut scale = Scale::parse();
    if scale.parts.is_empty() {
        scale.parts = Part::value_variants().to_vec();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure::run(&scale))
}
