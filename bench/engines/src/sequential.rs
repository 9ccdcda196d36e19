//! Loads keys in ascending order. Nothing overlaps, so a good engine writes little more
//! than the data once to the log and once to fragments.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::data::{BATCH_PAIRS, Batch, KEY_BYTES, Rng};
use crate::engine::{BEFORE, Engine, OURS, Safety};
use crate::meter::{Measured, Sampling, measure};
use crate::ours::Ours;
use crate::report::median;

#[derive(Args)]
pub struct SequentialArgs {
    /// GiB to load.
    #[arg(long, default_value_t = 4.0)]
    gib: f64,
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Earlier build of this program to compare with.
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
}

/// Arguments of the process that runs one load.
#[derive(Args)]
pub struct SequentialStepArgs {
    #[arg(long)]
    gib: f64,
    #[arg(long)]
    value_bytes: usize,
    #[arg(long)]
    data: PathBuf,
}

/// The results of one load.
#[derive(Serialize, Deserialize)]
struct Loaded {
    #[serde(flatten)]
    measured: Measured,
    loaded_bytes: u64,
    /// Bytes that the process wrote to storage.
    written_bytes: u64,
}

impl Loaded {
    fn mb_per_second(&self) -> f64 {
        self.loaded_bytes as f64 / 1e6 / self.measured.seconds
    }

    /// Returns the bytes written for each byte loaded.
    fn amplification(&self) -> f64 {
        self.written_bytes as f64 / self.loaded_bytes as f64
    }
}

impl SequentialArgs {
    pub fn run(&self, dir: &Path) -> Result<()> {
        let ours = std::env::current_exe()?;
        let mut builds = vec![(OURS, &ours)];
        if let Some(before) = &self.against {
            builds.insert(0, (BEFORE, before));
        }
        let mut loads: Vec<Vec<Loaded>> = builds.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            for at in 0..builds.len() {
                // Alternate which build runs first.
                let at = (at + round) % builds.len();
                let (name, program) = builds[at];
                eprintln!("round {} of {}: {name}", round + 1, self.rounds);
                loads[at].push(self.step(program, dir)?);
            }
        }
        println!("\n| build | MB/s | CPU us per pair | bytes written per byte loaded |");
        println!("|---|---|---|---|");
        for ((name, _), loads) in builds.iter().zip(&loads) {
            let of = |value: fn(&Loaded) -> f64| median(loads.iter().map(value).collect());
            let speed = of(Loaded::mb_per_second).unwrap_or_default();
            let cpu = of(|load| load.measured.cpu_us_per_operation()).unwrap_or_default();
            let amplification = of(Loaded::amplification).unwrap_or_default();
            println!("| {name} | {speed:.1} | {cpu:.2} | {amplification:.2} |");
        }
        Ok(())
    }

    fn step(&self, program: &Path, dir: &Path) -> Result<Loaded> {
        let data = tempfile::tempdir_in(dir)?;
        let output = Command::new(program)
            .arg("sequential-step")
            .args(["--gib", &self.gib.to_string()])
            .args(["--value-bytes", &self.value_bytes.to_string()])
            .arg("--data")
            .arg(data.path())
            .stderr(std::process::Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "{} exited with {}", program.display(), output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl SequentialStepArgs {
    /// Loads the data and waits until everything is flushed and all due compactions are
    /// done.
    pub fn run(&self) -> Result<()> {
        let ours = Ours::open(&self.data)?;
        let pair_bytes = (KEY_BYTES + self.value_bytes) as u64;
        let pairs = (self.gib * (1u64 << 30) as f64) as u64 / pair_bytes;
        let mut batch = Batch::new(self.value_bytes);
        let mut rng = Rng::new(1);
        let mut next = 0;
        let measured = measure(None, Sampling::Every, || {
            let count = BATCH_PAIRS.min(pairs - next);
            if count == 0 {
                return Ok(None);
            }
            batch.refill_in_order(next, count, &mut rng);
            next += count;
            ours.write(&batch, Safety::Written)?;
            Ok(Some(count))
        })?;
        ours.store.flush(ours.table)?;
        ours.store.close()?;
        let loaded =
            Loaded { measured, loaded_bytes: pairs * pair_bytes, written_bytes: written_bytes()? };
        println!("{}", serde_json::to_string(&loaded)?);
        Ok(())
    }
}

/// Returns the bytes that this process has written to storage so far.
fn written_bytes() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    Ok(line.context("no write_bytes in /proc/self/io")?.trim().parse()?)
}
