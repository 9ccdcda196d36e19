//! The well-behaved client: repeatedly pings, reads a row and writes a row, and records
//! the latencies. Every call must succeed.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use hdrhistogram::Histogram;
use stele_bench_wire::{Rng, new_hist, proc_usage};

use crate::{Client, INSTANCE, ROWS, TABLE, client, key, load, set_cell};

const INTERVAL: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Measurements of one second of the soak.
pub struct Sample {
    pub seconds: f64,
    pub rss_bytes: u64,
    pub ping_p99_ms: f64,
    pub read_p99_ms: f64,
    pub write_p99_ms: f64,
    pub worst_ms: f64,
    pub calls: u64,
    pub errors: u64,
}

/// The latencies, in nanoseconds, of pings, reads and writes.
pub type Times = [Histogram<u64>; 3];

/// The measurements of the whole soak: a sample per second, and all latencies.
pub struct Course {
    pub samples: Vec<Sample>,
    pub times: Times,
}

pub async fn run(target: &str, pid: u32, until: Instant) -> Result<Course> {
    let mut client = client(target).await?;
    let mut rng = Rng::new(7);
    let started = Instant::now();
    let mut course = Course { samples: Vec::new(), times: no_times() };
    while Instant::now() < until {
        let (sample, times) = second(&mut client, &mut rng, started, pid).await;
        course.samples.push(sample);
        for (all, times) in course.times.iter_mut().zip(&times) {
            all.add(times)?;
        }
    }
    Ok(course)
}

fn no_times() -> Times {
    [new_hist(), new_hist(), new_hist()]
}

async fn second(client: &mut Client, rng: &mut Rng, started: Instant, pid: u32) -> (Sample, Times) {
    let mut times = no_times();
    let (begun, mut errors) = (Instant::now(), 0);
    while begun.elapsed() < INTERVAL {
        for (kind, times) in times.iter_mut().enumerate() {
            let called = Instant::now();
            let outcome = match kind {
                0 => ping(client).await,
                1 => load::read(client, key(rng.below(ROWS))).await,
                _ => write(client, key(rng.below(ROWS)), rng).await,
            };
            times.saturating_record(called.elapsed().as_nanos() as u64);
            if let Err(error) = outcome {
                errors += 1;
                eprintln!("{:.0} s: call failed: {error:#}", started.elapsed().as_secs_f64());
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    let p99 = |kind: usize| times[kind].value_at_quantile(0.99) as f64 / 1e6;
    let sample = Sample {
        seconds: started.elapsed().as_secs_f64(),
        rss_bytes: proc_usage(&[pid]).1,
        ping_p99_ms: p99(0),
        read_p99_ms: p99(1),
        write_p99_ms: p99(2),
        worst_ms: times.iter().map(|times| times.max()).max().unwrap_or(0) as f64 / 1e6,
        calls: times.iter().map(|times| times.len()).sum(),
        errors,
    };
    (sample, times)
}

async fn ping(client: &mut Client) -> Result<()> {
    let request = bt::PingAndWarmRequest { name: INSTANCE.into(), ..Default::default() };
    client.ping_and_warm(request).await?;
    Ok(())
}

async fn write(client: &mut Client, row: Bytes, rng: &mut Rng) -> Result<()> {
    let request = bt::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: row,
        mutations: vec![set_cell("q", rng.value(1024).into())],
        ..Default::default()
    };
    client.mutate_row(request).await?;
    Ok(())
}
