//! Measures seeks inside one row, to one of many versions and one of many columns, and
//! scans over deleted rows.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::{
    Columns, CommitBuilder, Durability, FamilyColumns, RowRange, ScanSpec, Store, TableId,
    TimeRange, Txn,
};

use super::{Finding, Scale};
use crate::data::{Rng, key, touch};
use crate::meter::{Sampling, measure};
use crate::ours::{FAMILY, options};

const FEW: u64 = 10;
const VALUE: &[u8] = &[7; 100];
const ROW: &[u8] = b"row";
/// Upper bound of the time of a seek among many cells relative to one among ten.
const SLOWER_MAX: f64 = 5.0;
/// Upper bound in seconds of a scan over a million row tombstones.
const TOMBSTONES_SECONDS_MAX: f64 = 1.0;
const LIMIT: Duration = Duration::from_secs(1);
const CELLS_PER_COMMIT: u64 = 1_000;
/// Number of runs that a spread row is in: one in memory, the others on disk.
const RUNS: u64 = 4;

/// A store whose table keeps all versions.
struct Wide {
    store: Store,
    table: TableId,
}

impl Wide {
    fn open(dir: &Path) -> Result<Wide> {
        // Everything stays in memory until an explicit flush.
        let mut options = options();
        options.memory.budget_bytes = 8 << 30;
        options.flush.fragment_bytes = 4 << 30;
        let store = Store::open(dir, options, World::real())?;
        let table = store.create_table("wide", Schema::with_families([Family::new(FAMILY)])?)?;
        Ok(Wide { store, table })
    }

    /// Writes `count` items in large commits.
    fn write(&self, count: u64, add: impl Fn(&mut CommitBuilder, u64)) -> Result<()> {
        let mut next = 0;
        while next < count {
            let end = count.min(next + CELLS_PER_COMMIT);
            let mut builder = CommitBuilder::new();
            builder.table(self.table);
            (next..end).for_each(|number| add(&mut builder, number));
            self.store.apply(&builder.finish(), Txn::MAX, Durability::Accepted)?;
            next = end;
        }
        self.store.sync(Txn::MAX)?;
        Ok(())
    }

    /// Returns the microseconds of CPU time of a cached read that must find exactly one
    /// cell.
    fn seek_us(&self, mut spec: impl FnMut() -> ScanSpec) -> Result<f64> {
        self.store.read(self.table, ScanSpec::row(ROW), |_| ())?;
        let measured = measure(Some(LIMIT), Sampling::Some, || {
            let mut found = 0;
            self.store.read(self.table, spec(), |cell| {
                touch(cell.value);
                found += 1;
            })?;
            ensure!(found == 1, "a seek found {found} cells");
            Ok(Some(1))
        })?;
        Ok(measured.cpu_us_per_operation())
    }
}

/// Compares a seek among ten cells with a seek among many: in memory, on disk, and in a
/// row that is spread over both.
fn few_and_many(
    what: &str,
    many: u64,
    dir: &Path,
    add: impl Fn(&mut CommitBuilder, u64) + Copy,
    spec: impl Fn(u64) -> ScanSpec + Copy,
) -> Result<Vec<Finding>> {
    let mut memory_us = Vec::new();
    let mut disk_us = Vec::new();
    let mut spread_us = Vec::new();
    for count in [FEW, many] {
        let wide = Wide::open(&dir.join(format!("{count}")))?;
        wide.write(count, |builder, number| {
            if number % CELLS_PER_COMMIT == 0 {
                builder.row(ROW);
            }
            add(builder, number);
        })?;
        let mut rng = Rng::new(count);
        memory_us.push(wide.seek_us(|| spec(rng.below(count)))?);
        wide.store.flush(wide.table)?;
        wide.store.compact(wide.table)?;
        disk_us.push(wide.seek_us(|| spec(rng.below(count)))?);
        drop(wide);
        let wide = Wide::open(&dir.join(format!("{count} spread")))?;
        for run in 0..RUNS {
            if run > 0 {
                wide.store.flush(wide.table)?;
            }
            wide.write(count, |builder, number| {
                if number % CELLS_PER_COMMIT == 0 {
                    builder.row(ROW);
                }
                if number % RUNS == run {
                    add(builder, number);
                }
            })?;
        }
        spread_us.push(wide.seek_us(|| spec(rng.below(count)))?);
    }
    let mut findings = Vec::new();
    let locations = [
        ("memory", memory_us),
        ("disk fragment, cached", disk_us),
        ("spread over memory and three fragments", spread_us),
    ];
    for (location, times) in locations {
        for (count, time) in [FEW, many].iter().zip(&times) {
            findings.push(Finding::new(format!("{what} of {count}, {location}"), *time, "µs"));
        }
        let slower = Finding::new(
            format!("{what}, {location}: many over ten"),
            times[1] / times[0],
            "times",
        );
        findings.push(slower.at_most(SLOWER_MAX));
    }
    Ok(findings)
}

/// Measures reads of the newest cell at or before a timestamp.
pub fn versions(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let add = |builder: &mut CommitBuilder, number: u64| {
        builder.set(FAMILY, b"q", number as i64, VALUE);
    };
    let spec = |number: u64| ScanSpec {
        times: Some(TimeRange { min: i64::MIN, max: number as i64 }),
        versions: Some(1),
        ..ScanSpec::row(ROW)
    };
    few_and_many("newest at or before T", scale.of(100_000), dir, add, spec)
}

/// Measures reads of one column of a wide row.
pub fn columns(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let add = |builder: &mut CommitBuilder, number: u64| {
        builder.set(FAMILY, &key(number), 0, VALUE);
    };
    let spec = |number: u64| ScanSpec {
        columns: Columns::Families(vec![FamilyColumns {
            family: FAMILY.to_vec(),
            qualifiers: Some(vec![RowRange::row(&key(number))]),
        }]),
        ..ScanSpec::row(ROW)
    };
    few_and_many("one column", scale.of(1_000_000), dir, add, spec)
}

/// Measures a scan that finds only row tombstones.
pub fn tombstones(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let wide = Wide::open(dir)?;
    let rows = scale.of(1_000_000);
    let row = |number: u64| number.to_be_bytes();
    wide.write(rows, |builder, number| {
        builder.row(&row(number)).set(FAMILY, b"", 0, VALUE);
    })?;
    wide.store.flush(wide.table)?;
    wide.write(rows, |builder, number| {
        builder.row(&row(number)).delete_row();
    })?;
    let mut findings = Vec::new();
    for location in ["memory", "disk fragment"] {
        let mut found = 0;
        let scan = measure(None, Sampling::Every, {
            let mut passes = 0;
            let wide = &wide;
            let found = &mut found;
            move || {
                passes += 1;
                if passes > 1 {
                    return Ok(None);
                }
                wide.store.read(wide.table, ScanSpec::default(), |_| *found += 1)?;
                Ok(Some(rows))
            }
        })?;
        ensure!(found == 0, "{found} deleted cells were returned");
        let what =
            format!("scan over {rows} row tombstones in {location}, over as many deleted rows");
        findings.push(Finding::new(what, scan.seconds, "s").at_most(TOMBSTONES_SECONDS_MAX));
        wide.store.flush(wide.table)?;
    }
    Ok(findings)
}
