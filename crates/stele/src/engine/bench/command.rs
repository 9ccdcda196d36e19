//! The flags of the benchmark, its data sets and the printed results.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::meter::Measured;
use super::phases;
use super::workload::{Shape, Workload};
use crate::Outcome;
use crate::output::{bytes, count, json_line, table};

/// The default data sets.
const SHAPES: [Shape; 2] =
    [Shape { keys: 1_000_000, value_bytes: 100 }, Shape { keys: 200_000, value_bytes: 1024 }];

#[derive(Args)]
pub struct Options {
    /// Parent of the temporary directory [default: the system's temporary directory].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Number of keys; if --value-size is omitted, values have 100 bytes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Bytes per value; if --keys is omitted, 1,000,000 keys are used.
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    value_size: Option<u32>,
    /// Seconds for each phase of random reads or overwrites.
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    parsed.ok_or_else(|| "expected a number from 0.01 to 3600".to_string())
}

impl Options {
    fn shapes(&self) -> Vec<Shape> {
        if self.keys.is_none() && self.value_size.is_none() {
            return SHAPES.to_vec();
        }
        let keys = self.keys.unwrap_or(SHAPES[0].keys);
        let value_bytes = self.value_size.map_or(SHAPES[0].value_bytes, |size| size as usize);
        vec![Shape { keys, value_bytes }]
    }
}

/// The results for one data set.
#[derive(Serialize)]
struct Run {
    keys: u64,
    value_bytes: usize,
    /// Bytes of all keys and values.
    user_bytes: u64,
    /// Bytes of the store's files after filling and compacting.
    disk_bytes_filled: u64,
    /// Bytes of the store's files at the end.
    disk_bytes_end: u64,
    phases: Vec<Measured>,
}

#[derive(Serialize)]
struct Results {
    version: &'static str,
    seconds: f64,
    runs: Vec<Run>,
}

pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut runs = Vec::new();
    for shape in options.shapes() {
        let run = measure(shape, options)?;
        if !options.json {
            show(&mut io::stdout().lock(), &run)?;
        }
        runs.push(run);
    }
    if options.json {
        let version = env!("CARGO_PKG_VERSION");
        json_line(&mut io::stdout().lock(), &Results { version, seconds: options.seconds, runs })?;
    }
    if cfg!(debug_assertions) {
        eprintln!(
            "warning: this is a development build; build with --release for meaningful numbers"
        );
    }
    Ok(Outcome::Sound)
}

fn measure(shape: Shape, options: &Options) -> anyhow::Result<Run> {
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    // Removed when it goes out of scope, also after an error.
    let dir =
        tempfile::Builder::new().prefix("stele-bench-").tempdir_in(&parent).with_context(|| {
            format!("cannot create a directory in {}: choose another with --dir", parent.display())
        })?;
    let workload = Workload::open(dir.path(), shape)?;
    let (phases, disk_bytes_filled) = phases::run(&workload, dir.path(), options.seconds)?;
    workload.close()?;
    Ok(Run {
        keys: shape.keys,
        value_bytes: shape.value_bytes,
        user_bytes: shape.user_bytes(),
        disk_bytes_filled,
        disk_bytes_end: disk_bytes(dir.path())?,
        phases,
    })
}

/// Returns the bytes of all files under a directory.
pub fn disk_bytes(dir: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // Counts blocks instead of lengths, because log segments are preallocated.
        sum += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}

fn show(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    writeln!(
        out,
        "{} keys of 16 bytes with values of {} bytes, {} in all",
        count(run.keys),
        count(run.value_bytes as u64),
        bytes(run.user_bytes)
    )?;
    let header = ["phase", "ops/s", "CPU us/op", "syncs/op", "p50 us", "p99 us", "ops", "seconds"];
    let mut phases = table(&header, 1);
    for phase in &run.phases {
        let latency = |value: Option<f64>| value.map_or(String::new(), |us| format!("{us:.1}"));
        phases.add_row(vec![
            phase.title.to_string(),
            count(phase.ops_per_second as u64),
            format!("{:.2}", phase.cpu_us_per_op),
            format!("{:.4}", phase.syncs_per_op),
            latency(phase.p50_us),
            latency(phase.p99_us),
            count(phase.ops),
            format!("{:.2}", phase.seconds),
        ]);
    }
    writeln!(out, "{phases}")?;
    writeln!(
        out,
        "on disk: {} after filling and compacting, {} at the end\n",
        bytes(run.disk_bytes_filled),
        bytes(run.disk_bytes_end)
    )
}
