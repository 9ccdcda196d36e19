//! Measures a phase: time, CPU, syncs and latencies.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::workload::Workload;
use crate::proc_stat::ProcStat;

/// The result of one phase. An operation is one cell written or read.
#[derive(Serialize)]
pub struct Measured {
    /// The phase in JSON output.
    pub phase: &'static str,
    /// The phase in text output.
    #[serde(skip)]
    pub title: &'static str,
    pub ops: u64,
    pub seconds: f64,
    pub ops_per_second: f64,
    /// CPU time of the whole process, including background workers.
    pub cpu_us_per_op: f64,
    pub syncs_per_op: f64,
    /// Latency of one call, in phases that make many.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
}

/// The work done by one thread of a phase.
#[derive(Default)]
pub struct Tally {
    pub ops: u64,
    /// Nanoseconds per call.
    latencies: Vec<u32>,
}

impl Tally {
    /// Makes calls until the deadline passes or none are left. Each call returns its
    /// number of operations.
    pub fn until(
        deadline: Option<Instant>,
        mut call: impl FnMut() -> anyhow::Result<Option<u64>>,
    ) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let mut started = Instant::now();
        while deadline.is_none_or(|deadline| started < deadline) {
            let Some(ops) = call()? else { break };
            let now = Instant::now();
            tally.ops += ops;
            tally.latencies.push(nanos(now - started));
            started = now;
        }
        Ok(tally)
    }

    /// Returns the tally of a single long call.
    pub fn once(ops: u64) -> Tally {
        Tally { ops, latencies: Vec::new() }
    }

    pub fn join(mut self, other: Tally) -> Tally {
        self.ops += other.ops;
        self.latencies.extend(other.latencies);
        self
    }

    fn percentile(&mut self, share: f64) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        let at = (last as f64 * share) as usize;
        let (_, nanos, _) = self.latencies.select_nth_unstable(at);
        Some(f64::from(*nanos) / 1e3)
    }
}

fn nanos(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// Runs a phase and measures it.
pub fn measure(
    (phase, title): (&'static str, &'static str),
    workload: &Workload,
    run: impl FnOnce() -> anyhow::Result<Tally>,
) -> anyhow::Result<Measured> {
    eprintln!("{} x {} B: {title}", workload.shape.keys, workload.shape.value_bytes);
    let (cpu, syncs, started) = (cpu_seconds()?, workload.syncs(), Instant::now());
    let mut tally = run()?;
    let seconds = started.elapsed().as_secs_f64();
    let (cpu, syncs) = (cpu_seconds()? - cpu, workload.syncs() - syncs);
    let ops = tally.ops.max(1) as f64;
    Ok(Measured {
        phase,
        title,
        ops: tally.ops,
        seconds,
        ops_per_second: tally.ops as f64 / seconds,
        cpu_us_per_op: cpu * 1e6 / ops,
        syncs_per_op: syncs as f64 / ops,
        p50_us: tally.percentile(0.50),
        p99_us: tally.percentile(0.99),
    })
}

/// Returns the CPU time of this process so far, in user and kernel mode.
fn cpu_seconds() -> anyhow::Result<f64> {
    ProcStat::of_self().map(|stat| stat.cpu_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_calls_and_ops_are_summed() {
        let mut left = 100;
        let counted = Tally::until(None, || {
            left -= 1;
            Ok((left >= 0).then_some(3))
        });
        let mut tally = counted.unwrap().join(Tally::once(7));
        assert_eq!(tally.ops, 307);
        tally.latencies = (1..=101).rev().map(|us| us * 1000).collect();
        assert_eq!(tally.percentile(0.50), Some(51.0));
        assert_eq!(tally.percentile(0.99), Some(100.0));
        assert_eq!(Tally::once(1).percentile(0.5), None);
    }
}
