//! Measures the time and memory of replaying a long log. One process writes the log and
//! exits as if it had crashed; another one opens the store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use crate::data::{BATCH_PAIRS, Batch, Rng, Shape};
use crate::engine::{Engine, Safety};
use crate::meter::{Meter, latencies, peak_rss_bytes};
use crate::ours::{Ours, commit_of, options};
use crate::report::grouped;

/// Upper bound in seconds of the replay of a log of 1 GiB.
const SECONDS_MAX: f64 = 20.0;

#[derive(Args)]
pub struct RecoverArgs {
    /// MiB of log to write.
    #[arg(long, default_value_t = 1024)]
    log_mib: u64,
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
}

/// Arguments of the two processes.
#[derive(Args)]
pub struct RecoverStepArgs {
    #[arg(long)]
    log_mib: u64,
    #[arg(long)]
    value_bytes: usize,
    #[arg(long)]
    data: PathBuf,
    /// Write the log instead of replaying it.
    #[arg(long)]
    write: bool,
}

impl RecoverArgs {
    pub fn run(&self, dir: &Path) -> Result<()> {
        let data = tempfile::tempdir_in(dir)?;
        for write in [true, false] {
            let status = Command::new(std::env::current_exe()?)
                .arg("recover-step")
                .args(["--log-mib", &self.log_mib.to_string()])
                .args(["--value-bytes", &self.value_bytes.to_string()])
                .args(write.then_some("--write"))
                .arg("--data")
                .arg(data.path())
                .status()?;
            ensure!(status.success(), "a step of the recovery exited with {status}");
        }
        Ok(())
    }
}

impl RecoverStepArgs {
    pub fn run(&self) -> Result<()> {
        if self.write { self.write_log() } else { self.replay() }
    }

    /// Returns a shape with enough keys that none is written twice.
    fn shape(&self) -> Shape {
        Shape { keys: self.log_mib << 20, value_bytes: self.value_bytes }
    }

    /// Writes the log and exits without closing the store, with nothing flushed.
    fn write_log(&self) -> Result<()> {
        let mut options = options();
        options.memory.budget_bytes = usize::MAX / 2;
        options.flush.fragment_bytes = usize::MAX / 2;
        options.flush.replay_bytes_max = u64::MAX;
        let ours = Ours::open_with(&self.data, options)?;
        let Shape { keys, value_bytes } = self.shape();
        let mut batch = Batch::new(value_bytes);
        let mut rng = Rng::new(1);
        let (mut first, mut logged) = (0, 0);
        while logged < self.log_mib << 20 {
            batch.refill(first, BATCH_PAIRS, keys, &mut rng);
            logged += commit_of(ours.table, &batch).bytes().len() as u64;
            ours.write(&batch, Safety::Written)?;
            first += BATCH_PAIRS;
        }
        ours.store.sync(stele_engine::Txn::MAX)?;
        println!("log of {} MiB, {} commits", logged >> 20, grouped((first / BATCH_PAIRS) as f64));
        std::process::exit(0)
    }

    fn replay(&self) -> Result<()> {
        let options = options();
        let budget = options.memory.budget_bytes;
        let meter = Meter::start();
        let started = Instant::now();
        let ours = Ours::open_with(&self.data, options)?;
        let seconds = started.elapsed().as_secs_f64();
        let measured = meter.stop(1, &latencies());
        let stats = ours.store.stats();
        println!(
            "replayed in {seconds:.2} s ({:.2} s of CPU), at most {SECONDS_MAX:.0} s for 1 GiB; \
             peak RSS {} MB of a {} MB budget; {} fragments written",
            measured.cpu_seconds,
            peak_rss_bytes()? / 1_000_000,
            budget / 1_000_000,
            stats.fragments,
        );
        let last = crate::data::key(0);
        ensure!(ours.get(&last)? == Some(self.value_bytes), "the first key is missing");
        Ok(())
    }
}
