//! A long load, with its speed per second as a CSV file and a plot.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use stele_bench_plot::{Line, Plot};

use crate::data::{BATCH_PAIRS, Batch, KEY_BYTES, Rng};
use crate::engine::{Engine, Safety};
use crate::ours::Ours;

#[derive(Args)]
pub struct LoadArgs {
    /// GiB to load.
    #[arg(long, default_value_t = 10.0)]
    gib: f64,
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    /// File for the samples; the plot is written next to it, as .svg.
    #[arg(long, default_value = "docs/load.csv")]
    csv: PathBuf,
}

/// Measurements of one second of the load.
struct Sample {
    seconds: f64,
    mb_per_second: f64,
    /// Duration of the slowest commit in milliseconds.
    worst_ms: f64,
    memory_mb: f64,
    chain: usize,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl LoadArgs {
    pub fn run(&self, dir: &Path) -> Result<()> {
        let data = tempfile::tempdir_in(dir)?;
        let ours = Ours::open(data.path())?;
        let started = Instant::now();
        let samples = self.load(&ours)?;
        let seconds = started.elapsed().as_secs_f64();
        let title = format!("Loading {} GiB, batches of 100 x {} B", self.gib, self.value_bytes);
        write_csv(&samples, &self.csv)?;
        plot(&samples, &title).write(&self.csv.with_extension("svg"))?;
        let stats = ours.store.stats();
        println!(
            "{title}: {:.1} MB/s over {seconds:.0} s; {} flushes, {} compactions, {} commits throttled",
            self.gib * (1u64 << 30) as f64 / 1e6 / seconds,
            stats.flushes,
            stats.compactions,
            stats.throttled,
        );
        Ok(())
    }

    fn load(&self, ours: &Ours) -> Result<Vec<Sample>> {
        let pair_bytes = (KEY_BYTES + self.value_bytes) as u64;
        let pairs = (self.gib * (1u64 << 30) as f64) as u64 / pair_bytes;
        let mut batch = Batch::new(self.value_bytes);
        let mut rng = Rng::new(1);
        let mut samples = Vec::new();
        let started = Instant::now();
        let (mut since, mut bytes, mut worst) = (started, 0, Duration::ZERO);
        for first in (0..pairs).step_by(BATCH_PAIRS as usize) {
            batch.refill(first, BATCH_PAIRS, pairs + BATCH_PAIRS, &mut rng);
            let began = Instant::now();
            ours.write(&batch, Safety::Written)?;
            worst = worst.max(began.elapsed());
            bytes += BATCH_PAIRS * pair_bytes;
            if since.elapsed() >= INTERVAL {
                let stats = ours.store.stats();
                samples.push(Sample {
                    seconds: started.elapsed().as_secs_f64(),
                    mb_per_second: bytes as f64 / 1e6 / since.elapsed().as_secs_f64(),
                    worst_ms: worst.as_secs_f64() * 1e3,
                    memory_mb: stats.memory_used_bytes as f64 / 1e6,
                    chain: stats.chain_longest,
                });
                (since, bytes, worst) = (Instant::now(), 0, Duration::ZERO);
            }
        }
        Ok(samples)
    }
}

fn write_csv(samples: &[Sample], path: &Path) -> Result<()> {
    let mut text = String::from("seconds,mb_per_second,worst_commit_ms,memory_mb,chain_longest\n");
    for sample in samples {
        let Sample { seconds, mb_per_second, worst_ms, memory_mb, chain } = sample;
        writeln!(text, "{seconds:.2},{mb_per_second:.1},{worst_ms:.1},{memory_mb:.0},{chain}")?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn plot(samples: &[Sample], title: &str) -> Plot {
    let line = |label: &str, colour: &'static str, value: fn(&Sample) -> f64| Line {
        label: label.to_string(),
        colour,
        points: samples.iter().map(|sample| (sample.seconds, value(sample))).collect(),
    };
    Plot {
        title: title.to_string(),
        x_label: "seconds".to_string(),
        lines: vec![
            line("MB/s", "#1f77b4", |sample| sample.mb_per_second),
            line("memory, MB", "#2ca02c", |sample| sample.memory_mb),
            line("slowest commit, ms", "#d62728", |sample| sample.worst_ms),
        ],
    }
}
