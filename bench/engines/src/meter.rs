//! Measures a period of work: wall time, CPU time of the whole process, and latencies.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The results of a measurement.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Number of operations: pairs written, or keys read.
    pub operations: u64,
    pub seconds: f64,
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Median duration of one call, whatever its number of operations.
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.operations.max(1) as f64
    }
}

/// A histogram of latencies in nanoseconds, up to ten minutes.
pub type Latencies = Histogram<u64>;

pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid")
}

/// A measurement in progress.
pub struct Meter {
    started: Instant,
    cpu: Duration,
}

impl Meter {
    pub fn start() -> Meter {
        Meter { cpu: cpu_time(), started: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn stop(self, operations: u64, latencies: &Latencies) -> Measured {
        let seconds = self.started.elapsed().as_secs_f64();
        let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        Measured {
            operations,
            seconds,
            cpu_seconds: (cpu_time() - self.cpu).as_secs_f64(),
            p50_us: micros(0.5),
            p99_us: micros(0.99),
        }
    }
}

/// Which calls are timed individually.
#[derive(Clone, Copy)]
pub enum Sampling {
    Every,
    /// One in sixteen: reading the clock costs as much as a quick call.
    Some,
}

const SAMPLE_INTERVAL: u64 = 16;

/// Calls `call`, which returns the number of operations it did, until the time is up or
/// there is no more work.
pub fn measure(
    limit: Option<Duration>,
    sampling: Sampling,
    mut call: impl FnMut() -> Result<Option<u64>>,
) -> Result<Measured> {
    let mut latencies = latencies();
    let mut operations = 0;
    let meter = Meter::start();
    for number in 0u64.. {
        let sampled = match sampling {
            Sampling::Every => true,
            Sampling::Some => number % SAMPLE_INTERVAL == 0,
        };
        let started = sampled.then(Instant::now);
        let Some(done) = call()? else { break };
        operations += done;
        if let Some(started) = started {
            latencies.saturating_record(started.elapsed().as_nanos() as u64);
            if limit.is_some_and(|limit| meter.elapsed() >= limit) {
                break;
            }
        }
    }
    Ok(meter.stop(operations, &latencies))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Returns the peak memory of this process in bytes.
pub fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).unwrap_or("0");
    Ok(kilobytes.parse::<u64>()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_all_calls_are_added_up() {
        let mut calls = 0;
        let measured = measure(None, Sampling::Some, || {
            calls += 1;
            Ok((calls <= 100).then_some(3))
        });
        assert_eq!(measured.unwrap().operations, 300);
        assert!(peak_rss_bytes().unwrap() > 1 << 20);
    }
}
