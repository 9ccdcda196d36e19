//! Measures point reads during a compaction.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::scans::fill;
use super::{Finding, Scale};
use crate::data::{Rng, key};
use crate::engine::Engine;
use crate::meter::{Latencies, Sampling, latencies, measure};
use crate::ours::{Ours, options};

/// Upper bound of the p99 during a compaction relative to that of an idle store.
const P99_SLOWER_MAX: f64 = 3.0;
/// A compaction is short, so it is repeated for this long.
const LIMIT: Duration = Duration::from_secs(4);

/// Measures the latencies of point reads of an idle store and during a compaction.
pub fn reads_while_compacting(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let mut options = options();
    // Small fragments make a long chain; background compaction is off.
    options.flush.fragment_bytes = 32 << 20;
    options.compact.chain_min = usize::MAX;
    options.compact.chain_max = usize::MAX;
    let ours = Ours::open_with(dir, options)?;
    let keys = scale.of(1_000_000);
    fill(&ours, keys)?;
    ours.store.flush(ours.table)?;
    for number in 0..keys {
        ours.get(&key(number))?;
    }
    let chain = ours.store.stats().chain_longest;
    ours.store.compact(ours.table)?;
    let mut rng = Rng::new(1);
    let idle = measure(Some(Duration::from_secs(2)), Sampling::Every, || {
        ours.get(&key(rng.below(keys)))?;
        Ok(Some(1))
    })?;
    let during = during_compaction(&ours, keys)?;
    let micros = |quantile| during.value_at_quantile(quantile) as f64 / 1e3;
    let (p50, p99) = (micros(0.5), micros(0.99));
    Ok(vec![
        Finding::new(format!("fragments that held {keys} cells"), chain as f64, ""),
        Finding::new("point read p50, idle", idle.p50_us, "µs"),
        Finding::new("point read p50, while compacting", p50, "µs"),
        Finding::new("point read p99, idle", idle.p99_us, "µs"),
        Finding::new("point read p99, while compacting", p99, "µs"),
        Finding::new("p99 while compacting over p99 idle", p99 / idle.p99_us, "times")
            .at_most(P99_SLOWER_MAX),
    ])
}

/// Reads while another thread compacts repeatedly.
fn during_compaction(ours: &Ours, keys: u64) -> Result<Latencies> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let compactor = scope.spawn(|| {
            let started = Instant::now();
            let mut result = Ok(());
            while result.is_ok() && started.elapsed() < LIMIT {
                result = ours.store.compact(ours.table);
            }
            done.store(true, Ordering::Release);
            result
        });
        let mut latencies = latencies();
        let mut rng = Rng::new(2);
        while !done.load(Ordering::Acquire) {
            let started = Instant::now();
            ours.get(&key(rng.below(keys)))?;
            latencies.saturating_record(started.elapsed().as_nanos() as u64);
        }
        compactor.join().expect("a compaction does not panic")?;
        Ok(latencies)
    })
}
