//! Traces at scale, on one machine: results from a seeded generator are
//! written to files, ingested from them, compacted, and read back. Prints one
//! line of JSON for each measurement.

mod data;
mod measure;

use std::path::PathBuf;

use clap::Parser;

/// Measure traces.
#[derive(Parser, Clone)]
pub struct Scale {
    #[arg(long, default_value_t = 1000)]
    pub tests: u32,
    #[arg(long, default_value_t = 100)]
    pub configs: u32,
    #[arg(long, default_value_t = 256)]
    pub commits: u32,
    /// Digests in the map that is loaded.
    #[arg(long, default_value_t = 1_000_000)]
    pub digests: usize,
    /// Tiles that one trace is followed over.
    #[arg(long, default_value_t = 100)]
    pub tiles: u32,
    /// Where files and stores go, and are removed from.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let scale = Scale::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure::run(&scale))
}
