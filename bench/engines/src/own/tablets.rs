//! Measures tables of many tablets against the same table of one, and splits and joins.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use stele_engine::world::World;
use stele_engine::{RowRange, ScanSpec, Store};

use super::{Finding, Scale};
use crate::data::{BATCH_PAIRS, Batch, Key, Rng, key, touch};
use crate::engine::{Engine, Safety};
use crate::meter::{Sampling, latencies, measure};
use crate::ours::{Ours, TABLE, options, schema};

/// Numbers of tablets, with the minimum speed relative to one tablet and the maximum
/// seconds to open the store.
const COUNTS: [(u64, f64, f64); 2] = [(1_000, 0.9, 2.0), (10_000, 0.85, 5.0)];
const VALUE_BYTES: usize = 100;
/// Rows of one short scan.
const SCANNED_ROWS: usize = 100;
/// The tables are measured in turns, and the median of the ratios counts.
const ROUNDS: usize = 9;
const TURN: Duration = Duration::from_millis(300);
/// How often memory is sealed to find the longest time that it takes.
const SEALS: u64 = 100;
const SEAL_MICROS_MAX: f64 = 50.0;
const LARGE_VALUE_BYTES: usize = 1024;
/// How often a tablet of a gibibyte is split and joined again.
const SPLITS: u64 = 200;
const SPLIT_MILLIS_MAX: f64 = 20.0;

/// Measures loads, reads, scans, seals and the opening of tables of many tablets.
pub fn many(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let keys = scale.of(1_000_000);
    let mut findings = Vec::new();
    for (count, speed_min, seconds_max) in COUNTS {
        let (one_dir, many_dir) = (dir.join(format!("{count}-one")), dir.join(count.to_string()));
        let (one, many) = (create(&one_dir, 1)?, create(&many_dir, count)?);
        let loads = load_in_turns(&one, &many, keys)?;
        one.compact()?;
        many.compact()?;
        for number in 0..keys {
            one.get(&key(number))?;
            many.get(&key(number))?;
        }
        let what = |what: &str| format!("{what} of {count} tablets, CPU relative to one");
        findings.push(Finding::new(what("load"), loads, "times").at_most(1.0 / speed_min));
        let reads = in_turns(|many_tablets, rng| {
            let ours = if many_tablets { &many } else { &one };
            ours.get(&key(rng.below(keys)))?;
            Ok(1)
        })?;
        findings.push(Finding::new(what("point read"), reads, "times").at_most(1.0 / speed_min));
        let scans = in_turns(|many_tablets, rng| {
            let ours = if many_tablets { &many } else { &one };
            scan_from(ours, key(rng.below(keys)))
        })?;
        findings.push(Finding::new(what("short scan"), scans, "times").at_most(1.0 / speed_min));
        if count == COUNTS[0].0 {
            let micros = seal_repeatedly(&many)?.as_nanos() as f64 / 1e3;
            let what = format!("longest of {SEALS} seals of memory with {count} tablets");
            findings.push(Finding::new(what, micros, "µs").at_most(SEAL_MICROS_MAX));
        }
        drop((one, many));
        let started = Instant::now();
        let store = Store::open(&many_dir, options(), World::real())?;
        let seconds = started.elapsed().as_secs_f64();
        drop(store);
        let what = format!("opening a store of {count} tablets");
        findings.push(Finding::new(what, seconds, "s").at_most(seconds_max));
    }
    Ok(findings)
}

/// Measures splits and joins of a tablet of one gibibyte.
pub fn splits(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let ours = Ours::open(dir)?;
    let keys = scale.of(1_000_000);
    load(&ours, LARGE_VALUE_BYTES, 0..keys, keys)?;
    ours.compact()?;
    let bytes = ours.store.stats().fragment_bytes;
    let (mut split, mut join) = (latencies(), latencies());
    let mut rng = Rng::new(5);
    for _ in 0..SPLITS {
        let row = key(rng.below(keys));
        let started = Instant::now();
        ensure!(ours.store.split(ours.table, &row)?, "the row was already the first of a tablet");
        split.saturating_record(started.elapsed().as_nanos() as u64);
        let started = Instant::now();
        ours.store.join(ours.table, &row)?;
        join.saturating_record(started.elapsed().as_nanos() as u64);
    }
    let millis = |nanos: u64| nanos as f64 / 1e6;
    let mut findings = vec![Finding::new("size of the tablet", bytes as f64, "B")];
    for (what, times) in [("split", split), ("join", join)] {
        let median = millis(times.value_at_quantile(0.5));
        findings.push(Finding::new(format!("{what}, median"), median, "ms"));
        let longest = Finding::new(format!("{what}, longest"), millis(times.max()), "ms");
        findings.push(longest.at_most(SPLIT_MILLIS_MAX));
    }
    Ok(findings)
}

/// Creates a store whose table has `count` tablets of about the same size.
fn create(dir: &Path, count: u64) -> Result<Ours> {
    std::fs::create_dir_all(dir)?;
    let store = Store::open(dir, options(), World::real())?;
    let step = u64::MAX / count;
    let splits = (1..count).map(|number| (number * step).to_be_bytes().to_vec()).collect();
    store.create_table_with_splits(TABLE, schema()?, splits)?;
    drop(store);
    Ours::open(dir)
}

/// Writes the pairs of these numbers, of `keys` in all.
fn load(ours: &Ours, value_bytes: usize, numbers: std::ops::Range<u64>, keys: u64) -> Result<()> {
    let mut batch = Batch::new(value_bytes);
    let mut rng = Rng::new(1);
    for first in numbers.clone().step_by(BATCH_PAIRS as usize) {
        batch.refill(first, BATCH_PAIRS.min(numbers.end - first), keys, &mut rng);
        ours.write(&batch, Safety::Written)?;
    }
    Ok(())
}

/// Loads two stores in turns. Returns the CPU time of the second relative to the first.
fn load_in_turns(one: &Ours, many: &Ours, keys: u64) -> Result<f64> {
    let turns = ROUNDS as u64;
    let mut ratios = Vec::new();
    for turn in 0..turns {
        let numbers = keys * turn / turns..keys * (turn + 1) / turns;
        let mut cpu = Vec::new();
        for ours in [one, many] {
            let measured = measure(None, Sampling::Every, || {
                load(ours, VALUE_BYTES, numbers.clone(), keys)?;
                ours.store.flush(ours.table)?;
                Ok(None)
            })?;
            cpu.push(measured.cpu_seconds);
        }
        ratios.push(cpu[1] / cpu[0]);
    }
    Ok(median(ratios))
}

/// Runs an operation on one tablet and on many, in turns. Returns the CPU time of the
/// second relative to the first.
fn in_turns(mut operation: impl FnMut(bool, &mut Rng) -> Result<u64>) -> Result<f64> {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let mut cpu = [0.0; 2];
        for turn in [round % 2, (round + 1) % 2] {
            let mut rng = Rng::new(round as u64);
            let measured =
                measure(Some(TURN), Sampling::Some, || operation(turn == 1, &mut rng).map(Some))?;
            cpu[turn] = measured.cpu_us_per_operation();
        }
        ratios.push(cpu[1] / cpu[0]);
    }
    Ok(median(ratios))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Scans some rows from a key on. Returns the number of scans.
fn scan_from(ours: &Ours, first: Key) -> Result<u64> {
    let rows = RowRange { start: first.to_vec(), end: None };
    let spec = ScanSpec { rows_max: Some(SCANNED_ROWS), ..ScanSpec::range(rows) };
    ours.store.read(ours.table, spec, |cell| touch(cell.value))?;
    Ok(1)
}

/// Writes a little and flushes it, repeatedly. Returns the longest time for which memory
/// was sealed, which excludes writers.
fn seal_repeatedly(ours: &Ours) -> Result<Duration> {
    for number in 0..SEALS {
        load(ours, VALUE_BYTES, number..number + 1, u64::MAX)?;
        ours.store.flush(ours.table)?;
    }
    Ok(ours.store.stats().seal_longest)
}
