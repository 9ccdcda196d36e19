//! The workloads that every engine runs, in order, and the ratios that Stele has to
//! reach.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::data::{BATCH_PAIRS, Batch, Rng, Shape, key};
use crate::engine::{Engine, Safety};
use crate::meter::{Measured, Meter, Sampling, latencies, measure};

/// Number of threads of the group-commit workload.
const WRITERS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Workload {
    Fill,
    /// Bytes on disk; no operations.
    Disk,
    Read,
    Scan,
    PutWritten,
    BatchDurable,
    PutDurable,
    PutDurableThreads,
}

/// All workloads in the order in which they run: each uses the data left by the ones
/// before.
pub const WORKLOADS: [Workload; 8] = [
    Workload::Fill,
    Workload::Disk,
    Workload::Read,
    Workload::Scan,
    Workload::PutWritten,
    Workload::BatchDurable,
    Workload::PutDurable,
    Workload::PutDurableThreads,
];

impl Workload {
    /// Returns the name used on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no workload is skipped on the command line");
        value.get_name().to_string()
    }

    pub fn title(self) -> &'static str {
        match self {
            Workload::Fill => "fill, batches of 100, no sync",
            Workload::Disk => "MB on disk after fill and compaction, lz4",
            Workload::Read => "random point reads, cached",
            Workload::Scan => "full scan, cached",
            Workload::PutWritten => "single puts, no sync",
            Workload::BatchDurable => "batches of 100, fsync each",
            Workload::PutDurable => "single puts, fsync each",
            Workload::PutDurableThreads => "16 threads, single durable puts",
        }
    }

    /// Returns the required ratio of Stele to the better peer: a lower bound, or an
    /// upper bound for bytes on disk.
    pub fn bar(self, shape: Shape) -> Option<f64> {
        match self {
            Workload::Fill | Workload::PutWritten => Some(1.2),
            Workload::Disk => Some(1.0),
            Workload::Read => Some(if shape.has_large_values() { 1.4 } else { 1.2 }),
            Workload::Scan | Workload::PutDurableThreads => Some(1.5),
            Workload::BatchDurable => Some(1.3),
            Workload::PutDurable => None,
        }
    }

    /// Returns whether the latency of one call is meaningful to a user.
    pub fn has_latency(self) -> bool {
        !matches!(self, Workload::Disk | Workload::Scan)
    }
}

/// The result of one workload.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub workload: Workload,
    #[serde(flatten)]
    pub measured: Measured,
    /// Set only for `Disk`.
    pub bytes: u64,
}

/// A run of the workloads on one engine.
pub struct Course<'a> {
    pub engine: &'a dyn Engine,
    pub shape: Shape,
    /// Duration of the open-ended workloads.
    pub limit: Duration,
    pub seed: u64,
    /// The last workload to run; all if `None`.
    pub until: Option<Workload>,
}

impl Course<'_> {
    /// Runs the workloads and passes each outcome to `report` as soon as it is
    /// available.
    pub fn run(&self, report: &mut dyn FnMut(Outcome) -> Result<()>) -> Result<()> {
        for workload in WORKLOADS {
            let mut bytes = 0;
            let measured = match workload {
                Workload::Fill => self.fill()?,
                Workload::Disk => {
                    self.engine.compact()?;
                    bytes = self.engine.data_bytes()?;
                    Measured::default()
                }
                Workload::Read => self.read()?,
                Workload::Scan => self.scan()?,
                Workload::PutWritten => self.overwrite(1, Safety::Written)?,
                Workload::BatchDurable => self.overwrite(BATCH_PAIRS, Safety::Durable)?,
                Workload::PutDurable => self.overwrite(1, Safety::Durable)?,
                Workload::PutDurableThreads => self.overwrite_threads()?,
            };
            report(Outcome { workload, measured, bytes })?;
            if self.until == Some(workload) {
                break;
            }
        }
        Ok(())
    }

    fn fill(&self) -> Result<Measured> {
        let Shape { keys, value_bytes } = self.shape;
        let mut rng = Rng::new(self.seed);
        let mut batch = Batch::new(value_bytes);
        let mut next = 0;
        measure(None, Sampling::Every, || {
            let count = BATCH_PAIRS.min(keys - next);
            if count == 0 {
                return Ok(None);
            }
            batch.refill(next, count, keys, &mut rng);
            next += count;
            self.engine.write(&batch, Safety::Written)?;
            Ok(Some(count))
        })
    }

    fn read(&self) -> Result<Measured> {
        // Read every key once, so that all data is cached.
        for number in 0..self.shape.keys {
            self.get(number)?;
        }
        let mut rng = Rng::new(self.seed);
        measure(Some(self.limit), Sampling::Some, || {
            self.get(rng.below(self.shape.keys))?;
            Ok(Some(1))
        })
    }

    fn get(&self, number: u64) -> Result<()> {
        let found = self.engine.get(&key(number))?;
        ensure!(
            found == Some(self.shape.value_bytes),
            "key {number}: read a value of {found:?} bytes"
        );
        Ok(())
    }

    fn scan(&self) -> Result<Measured> {
        let pass = || {
            let count = self.engine.scan()?;
            ensure!(count == self.shape.keys, "a scan found {count} of {} keys", self.shape.keys);
            Ok(Some(count))
        };
        pass()?;
        measure(Some(self.limit), Sampling::Every, pass)
    }

    /// Overwrites random keys, `pairs` in a commit.
    fn overwrite(&self, pairs: u64, safety: Safety) -> Result<Measured> {
        self.engine.compact()?;
        let mut rng = Rng::new(self.seed + pairs);
        let mut batch = Batch::new(self.shape.value_bytes);
        measure(Some(self.limit), Sampling::Every, || {
            let first = rng.below(self.shape.keys);
            batch.refill(first, pairs, self.shape.keys, &mut rng);
            self.engine.write(&batch, safety)?;
            Ok(Some(pairs))
        })
    }

    fn overwrite_threads(&self) -> Result<Measured> {
        self.engine.compact()?;
        let meter = Meter::start();
        let mut all = latencies();
        std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || self.put_durable(writer))).collect();
            for writer in writers {
                all.add(writer.join().expect("a writer does not panic")?)?;
            }
            anyhow::Ok(())
        })?;
        Ok(meter.stop(all.len(), &all))
    }

    fn put_durable(&self, writer: u64) -> Result<crate::meter::Latencies> {
        let mut rng = Rng::new(self.seed + 1_000 + writer);
        let mut batch = Batch::new(self.shape.value_bytes);
        let mut latencies = latencies();
        let meter = Meter::start();
        while meter.elapsed() < self.limit {
            batch.refill(rng.below(self.shape.keys), 1, self.shape.keys, &mut rng);
            let started = std::time::Instant::now();
            self.engine.write(&batch, Safety::Durable)?;
            latencies.saturating_record(started.elapsed().as_nanos() as u64);
        }
        Ok(latencies)
    }
}
