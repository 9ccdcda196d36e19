//! Runs every engine in its own process, one after the other, in rounds. Memory and CPU
//! time can thus be attributed to one engine, and load on the machine affects all
//! engines alike.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::data::Shape;
use crate::engine::{self, BEFORE, NAMES, OURS};
use crate::report::{Entry, Report};
use crate::workload::{Course, Outcome, Workload};

/// The data sets of the comparison.
const SHAPES: [Shape; 2] =
    [Shape { keys: 1_000_000, value_bytes: 100 }, Shape { keys: 200_000, value_bytes: 1024 }];

#[derive(Args)]
pub struct CompareArgs {
    /// Number of rounds; the report shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds that each open-ended workload runs.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Engines to run, separated by commas.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Earlier build of this program to compare with, instead of other engines.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "engines")]
    against: Option<PathBuf>,
    /// Run only the data set with values of this many bytes.
    #[arg(long)]
    value_bytes: Option<usize>,
    /// Divide the number of keys by this.
    #[arg(long, default_value_t = 1)]
    shrink: u64,
    /// Block size in bytes for RocksDB and fjall, to find the best one.
    #[arg(long)]
    block_bytes: Option<u32>,
    /// Stop after this workload: fill, disk, read, scan, put_written, ...
    #[arg(long)]
    until: Option<Workload>,
    /// Also print every outcome as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of the process that runs one engine.
#[derive(Args)]
pub struct CourseArgs {
    #[arg(long)]
    engine: String,
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    value_bytes: usize,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    block_bytes: Option<u32>,
    #[arg(long)]
    until: Option<Workload>,
    #[arg(long)]
    data: PathBuf,
}

impl CompareArgs {
    pub fn run(&self, dir: &Path) -> Result<()> {
        for name in &self.engines {
            ensure!(
                NAMES.contains(&name.as_str()),
                "unknown engine {name:?}: use {}",
                NAMES.join(", ")
            );
        }
        for mut shape in SHAPES {
            if self.value_bytes.is_some_and(|bytes| bytes != shape.value_bytes) {
                continue;
            }
            shape.keys /= self.shrink.max(1);
            let mut report = Report { shape, rounds: self.rounds, entries: Vec::new() };
            for round in 0..self.rounds {
                for name in self.contestants(round) {
                    eprintln!("round {} of {}: {name}", round + 1, self.rounds);
                    let outcomes = self.course(name, shape, round, dir)?;
                    let entry = |outcome| Entry { engine: name, round, outcome };
                    report.entries.extend(outcomes.into_iter().map(entry));
                }
            }
            report.print();
        }
        Ok(())
    }

    /// Returns the engines of a round in order. When two builds are compared, they
    /// alternate at being first.
    fn contestants(&self, round: usize) -> Vec<&'static str> {
        if self.against.is_some() {
            return if round.is_multiple_of(2) { vec![BEFORE, OURS] } else { vec![OURS, BEFORE] };
        }
        let chosen = |name: &&str| {
            self.engines.is_empty() || self.engines.iter().any(|chosen| chosen == name)
        };
        NAMES.iter().copied().filter(chosen).collect()
    }

    /// Runs one engine once, in its own process.
    fn course(&self, name: &str, shape: Shape, round: usize, dir: &Path) -> Result<Vec<Outcome>> {
        let data = tempfile::tempdir_in(dir)?;
        let (program, engine) = match &self.against {
            Some(before) if name == BEFORE => (before.clone(), OURS),
            _ => (std::env::current_exe()?, name),
        };
        let mut child = Command::new(program)
            .arg("course")
            .args(["--engine", engine])
            .args(["--keys", &shape.keys.to_string()])
            .args(["--value-bytes", &shape.value_bytes.to_string()])
            .args(["--seconds", &self.seconds.to_string()])
            .args(["--seed", &round.to_string()])
            .args(self.block_bytes.map(|bytes| format!("--block-bytes={bytes}")))
            .args(self.until.map(|last| format!("--until={}", last.name())))
            .arg("--data")
            .arg(data.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("the child process has no standard output")?;
        let mut outcomes = Vec::new();
        for line in BufReader::new(output).lines() {
            let line = line?;
            let outcome: Outcome = serde_json::from_str(&line)?;
            if self.json {
                println!("{}", self.json_line(name, shape, round, &outcome)?);
            }
            outcomes.push(outcome);
        }
        let status = child.wait()?;
        ensure!(status.success(), "{name} exited with {status}");
        Ok(outcomes)
    }

    fn json_line(
        &self,
        name: &str,
        shape: Shape,
        round: usize,
        outcome: &Outcome,
    ) -> Result<String> {
        let mut line = serde_json::to_value(outcome)?;
        line["engine"] = name.into();
        line["ours"] = (name == OURS).into();
        line["keys"] = shape.keys.into();
        line["value_bytes"] = shape.value_bytes.into();
        line["round"] = round.into();
        line["operations_per_second"] = outcome.measured.per_second().into();
        line["cpu_us_per_operation"] = outcome.measured.cpu_us_per_operation().into();
        Ok(line.to_string())
    }
}

impl CourseArgs {
    /// Runs the workloads; called in the process of one engine.
    pub fn run(&self) -> Result<()> {
        let shape = Shape { keys: self.keys, value_bytes: self.value_bytes };
        let engine = engine::open(&self.engine, &self.data, shape, self.block_bytes)?;
        let limit = Duration::from_secs_f64(self.seconds);
        let until = self.until;
        let course = Course { engine: &*engine, shape, limit, seed: self.seed, until };
        course.run(&mut |outcome| {
            println!("{}", serde_json::to_string(&outcome)?);
            Ok(())
        })
    }
}
