//! Measures scans: reverse compared with forward, and one family of three.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::World;
use stele_engine::{
    Columns, CommitBuilder, Durability, FamilyColumns, ScanSpec, Store, TableId, Txn,
};

use super::counting::CountingFiles;
use super::{Finding, Scale};
use crate::data::{BATCH_PAIRS, Batch, Rng, key, touch};
use crate::engine::{Engine, Safety};
use crate::meter::{Sampling, measure};
use crate::ours::{Ours, options};

const VALUE_BYTES: usize = 100;
const LIMIT: Duration = Duration::from_secs(2);
/// A reverse scan is at least half as fast as a forward scan.
const REVERSE_SLOWER_MAX: f64 = 2.0;
const FAMILIES: [&str; 3] = ["a", "b", "c"];

/// Writes `keys` pairs.
pub fn fill(ours: &Ours, keys: u64) -> Result<()> {
    let mut batch = Batch::new(VALUE_BYTES);
    let mut rng = Rng::new(1);
    for first in (0..keys).step_by(BATCH_PAIRS as usize) {
        batch.refill(first, BATCH_PAIRS.min(keys - first), keys, &mut rng);
        ours.write(&batch, Safety::Written)?;
    }
    Ok(())
}

/// Measures rows per second of CPU time, forward and reverse, from the cache.
pub fn reverse(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let ours = Ours::open(dir)?;
    let keys = scale.of(1_000_000);
    fill(&ours, keys)?;
    ours.compact()?;
    for number in 0..keys {
        ours.get(&key(number))?;
    }
    let mut speeds = Vec::new();
    for reverse in [false, true] {
        let measured = measure(Some(LIMIT), Sampling::Every, || {
            let mut count = 0;
            let spec = ScanSpec { reverse, ..ScanSpec::default() };
            ours.store.read(ours.table, spec, |cell| {
                touch(cell.value);
                count += 1;
            })?;
            ensure!(count == keys, "a scan found {count} of {keys} rows");
            Ok(Some(count))
        })?;
        speeds.push(1e6 / measured.cpu_us_per_operation());
    }
    Ok(vec![
        Finding::new("forward scan, cached", speeds[0], "rows/s"),
        Finding::new("reverse scan, cached", speeds[1], "rows/s"),
        Finding::new("time of a reverse scan over a forward one", speeds[0] / speeds[1], "times")
            .at_most(REVERSE_SLOWER_MAX),
    ])
}

/// Measures the bytes that a scan of one family reads when each family has its own
/// group.
pub fn groups(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let rows = scale.of(300_000);
    let written = {
        let store = Store::open(dir, options(), World::real())?;
        let table = store.create_table("groups", three_groups()?)?;
        fill_groups(&store, table, rows)?;
        store.stats().fragment_bytes
    };
    let mut findings =
        vec![Finding::new(format!("{rows} rows of three groups, on disk"), written as f64, "B")];
    for families in [&FAMILIES[..1], &FAMILIES[..]] {
        let wanted = families.iter().map(|family| FamilyColumns::all(*family)).collect();
        let spec = ScanSpec { columns: Columns::Families(wanted), ..ScanSpec::default() };
        // Reopen the store, so that nothing is cached.
        let files = CountingFiles::default();
        let world = World { files: Arc::new(files.clone()), ..World::real() };
        let store = Store::open(dir, options(), world)?;
        let (table, _) = store.tables()[0];
        let before = files.read_bytes();
        let mut cells = 0;
        store.read(table, spec, |_| cells += 1)?;
        ensure!(cells == rows * families.len() as u64, "a scan found {cells} cells");
        let what = format!("bytes read by a scan of {} of the groups", families.len());
        findings.push(Finding::new(what, (files.read_bytes() - before) as f64, "B"));
    }
    Ok(findings)
}

fn three_groups() -> Result<Schema> {
    let group = |name: &str| Group::new(name, [Family::new(name)]);
    Ok(Schema::new(FAMILIES.map(group).into())?)
}

fn fill_groups(store: &Store, table: TableId, rows: u64) -> Result<()> {
    let mut batch = Batch::new(VALUE_BYTES);
    let mut rng = Rng::new(1);
    for first in (0..rows).step_by(BATCH_PAIRS as usize) {
        batch.refill(first, BATCH_PAIRS.min(rows - first), rows, &mut rng);
        let mut pairs: Vec<_> = batch.pairs().collect();
        pairs.sort_unstable();
        let mut builder = CommitBuilder::new();
        builder.table(table);
        for (row, value) in pairs {
            builder.row(row);
            for family in FAMILIES {
                builder.set(family.as_bytes(), b"", 0, value);
            }
        }
        store.apply(&builder.finish(), Txn::MAX, Durability::Accepted)?;
    }
    store.flush(table)?;
    Ok(store.compact(table)?)
}
