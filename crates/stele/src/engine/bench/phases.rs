//! The phases of the benchmark, in order.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use stele_engine::Durability;

use super::command::disk_bytes;
use super::meter::{Measured, Tally, measure};
use super::workload::{Random, Workload, key};

/// Keys per batch.
const BATCH: usize = 100;
/// How often filling reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The distance between consecutive keys while filling. A prime larger than any practical
/// number of keys, so that each key is written exactly once.
const FILL_STEP: u64 = 2_305_843_009_213_693_951;

/// Runs all phases. Also returns the bytes on disk after filling.
pub fn run(workload: &Workload, dir: &Path, seconds: f64) -> anyhow::Result<(Vec<Measured>, u64)> {
    let mut done = vec![measure(("fill", "fill, 100 per commit"), workload, || fill(workload))?];
    let compact = || workload.flush_and_compact().map(Tally::once);
    done.push(measure(("settle", "flush and compact"), workload, compact)?);
    let filled = disk_bytes(dir)?;

    workload.scan(true)?;
    let deadline = || Some(Instant::now() + Duration::from_secs_f64(seconds));
    let mut random = Random::new(7);
    done.push(measure(("read", "point read"), workload, || {
        Tally::until(deadline(), || workload.read(&mut random).map(Some))
    })?);
    done.push(measure(("scan", "scan"), workload, || workload.scan(false).map(Tally::once))?);

    let overwrites = [
        (("put", "put"), 1, Durability::Written),
        (("durable_batch", "durable, 100 per commit"), BATCH, Durability::Durable),
        (("durable_put", "durable put"), 1, Durability::Durable),
    ];
    for (phase, count, durability) in overwrites {
        done.push(measure(phase, workload, || {
            Tally::until(deadline(), || {
                workload.overwrite(count, &mut random, durability).map(Some)
            })
        })?);
    }
    done.push(measure(("durable_put_16", "durable put, 16 threads"), workload, || {
        run_in_threads(16, |thread| {
            let mut random = Random::new(1000 + thread);
            Tally::until(deadline(), || {
                workload.overwrite(1, &mut random, Durability::Durable).map(Some)
            })
        })
    })?);
    Ok((done, filled))
}

/// Writes every key once, in pseudo-random order.
fn fill(workload: &Workload) -> anyhow::Result<Tally> {
    let keys = workload.shape.keys;
    let mut random = Random::new(3);
    let (mut next, mut reported) = (0, Instant::now());
    Tally::until(None, || {
        if next == keys {
            return Ok(None);
        }
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            eprintln!("  {} of {keys}", next);
        }
        let batch = next..keys.min(next + BATCH as u64);
        next = batch.end;
        let shuffled = |at: u64| (u128::from(at) * u128::from(FILL_STEP) % u128::from(keys)) as u64;
        workload
            .put(batch.map(|at| key(shuffled(at))).collect(), &mut random, Durability::Written)
            .map(Some)
    })
}

/// Runs the same work in several threads.
fn run_in_threads(
    threads: u64,
    work: impl Fn(u64) -> anyhow::Result<Tally> + Sync,
) -> anyhow::Result<Tally> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().try_fold(Tally::default(), |sum, thread| {
            let tally =
                thread.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))??;
            Ok(sum.join(tally))
        })
    })
}
