//! Checks the tablets and chains of the config, and every fragment that it names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::check::damage_or_fail;
use super::report::{FragmentReport, Problem, Report};
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::{
    ChainConfig, Checkpoint, Configs, FileConfig, FileName, MANIFEST_FILE, TableConfig,
};
use crate::error::{Printable, Result};
use crate::fragment::Fragment;
use crate::tablet::FRAGMENTS_DIR;
use crate::txn::Txn;
use crate::world::Files;

pub fn check(
    files: &Arc<dyn Files>,
    dir: &Path,
    configs: &Configs,
    report: &mut Report,
) -> Result<()> {
    let mut check = ChainCheck { files, dir, report, named: BTreeMap::new() };
    for table in configs.tables.values() {
        check.table(table, configs)?;
    }
    for checkpoint in configs.checkpoints.values() {
        check.checkpoint(checkpoint)?;
    }
    Ok(())
}

struct ChainCheck<'a> {
    files: &'a Arc<dyn Files>,
    dir: &'a Path,
    report: &'a mut Report,
    /// The files checked so far, and the rows of each that are in use.
    named: BTreeMap<FileName, Vec<RowRange>>,
}

impl ChainCheck<'_> {
    /// Reports a contradiction in the manifest.
    fn manifest_problem(&mut self, what: String) {
        let path = self.dir.join(MANIFEST_FILE);
        self.report.problems.push(Problem::new(&path, 0, what));
    }

    fn table(&mut self, table: &TableConfig, configs: &Configs) -> Result<()> {
        self.report.tables += 1;
        let name = &table.name;
        if table.id.0 > configs.last_table {
            self.manifest_problem(format!(
                "table {name} has the id {}, which is not assigned yet",
                table.id.0
            ));
        }
        let mut end = Some(Vec::new());
        for tablet in &table.tablets {
            self.report.tablets += 1;
            if end.as_ref() != Some(&tablet.rows.start) || tablet.rows.is_empty() {
                let start = Printable::from(&tablet.rows.start[..]);
                self.manifest_problem(format!("the tablet of table {name} that starts at {start} does not follow the one before it"));
            }
            end = tablet.rows.end.clone();
            for (chain, group) in tablet.chains.iter().zip(table.schema.groups()) {
                self.chain(chain, &tablet.rows, name, &group.name, configs.epoch)?;
            }
        }
        if end.is_some() {
            self.manifest_problem(format!(
                "the tablets of table {name} do not cover its last rows"
            ));
        }
        Ok(())
    }

    /// Checks the files that only a checkpoint keeps.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        for table in &checkpoint.tables {
            for tablet in &table.tablets {
                for (chain, group) in tablet.chains.iter().zip(table.schema.groups()) {
                    for file in &chain.files {
                        if self.named.insert(file.name, Vec::new()).is_none() {
                            self.fragment(file, &tablet.rows, &table.name, &group.name)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn chain(
        &mut self,
        chain: &ChainConfig,
        rows: &RowRange,
        table: &str,
        group: &str,
        epoch: u64,
    ) -> Result<()> {
        let runs: Vec<&[FileConfig]> = chain.runs().collect();
        for (at, run) in runs.iter().enumerate() {
            let newer = runs[at + 1..].iter().copied().flatten();
            for (older, newer) in newer.flat_map(|newer| run.iter().map(move |o| (o, newer))) {
                if older.txn_max < newer.txn_min || !older.rows.overlaps(&newer.rows) {
                    continue;
                }
                self.manifest_problem(format!(
                    "a chain of table {table}, group {group}, is out of order: {} up to txn {} \
                     comes before {} from txn {}",
                    older.name, older.txn_max, newer.name, newer.txn_min
                ));
            }
        }
        if let Some(beyond) = chain.files.iter().find(|file| file.txn_max > chain.flushed_through) {
            self.manifest_problem(format!(
                "{} holds txn {}, but its chain is flushed only through txn {}",
                beyond.name, beyond.txn_max, chain.flushed_through
            ));
        }
        for file in &chain.files {
            if file.name.incarnation > epoch {
                self.manifest_problem(format!(
                    "{} has an incarnation above the epoch of the store",
                    file.name
                ));
            }
            let counted = self.named.entry(file.name).or_default();
            let (first, twice) =
                (counted.is_empty(), counted.iter().any(|c| c.overlaps(&file.rows)));
            counted.push(file.rows.clone());
            if twice {
                self.manifest_problem(format!(
                    "the manifest lists {} twice for the same rows",
                    file.name
                ));
            }
            if first {
                self.fragment(file, rows, table, group)?;
            }
        }
        Ok(())
    }

    fn fragment(
        &mut self,
        file: &FileConfig,
        tablet: &RowRange,
        table: &str,
        group: &str,
    ) -> Result<()> {
        let path = self.dir.join(FRAGMENTS_DIR).join(file.name.to_string());
        let problems = self.report.problems.len();
        let mut fragment_report = FragmentReport {
            path: path.clone(),
            table: table.to_string(),
            group: group.to_string(),
            bytes: file.bytes,
            blocks: 0,
            rows: 0,
            cells: 0,
            tombstones: 0,
            range_tombstones: 0,
            sound: false,
        };
        // Nothing is read twice, so caching is useless.
        match Fragment::open(self.files, &path, 0, BlockCache::new(0)) {
            Ok(fragment) => {
                self.compare(&fragment, file, tablet);
                let list = &mut self.report.problems;
                let report = fragment.inspect(&mut |error| list.push(Problem::of(error, &path)));
                fragment_report.blocks = report.blocks;
                fragment_report.rows = report.rows;
                fragment_report.cells = report.cells;
                fragment_report.tombstones = report.tombstones;
                fragment_report.range_tombstones = fragment.meta().range_tombstones;
            }
            Err(error) => self.report.problems.push(Problem::of(damage_or_fail(error)?, &path)),
        }
        fragment_report.sound = self.report.problems.len() == problems;
        self.report.fragments.push(fragment_report);
        Ok(())
    }

    /// Compares the footer with the config.
    fn compare(&mut self, fragment: &Fragment, file: &FileConfig, tablet: &RowRange) {
        let meta = fragment.meta();
        let footer_at = meta.data_bytes;
        let mut problem = |what: String| {
            self.report.problems.push(Problem::new(fragment.path(), footer_at, what));
        };
        if meta.stored_bytes != file.bytes {
            problem(format!(
                "the file has {} bytes, the manifest states {}",
                meta.stored_bytes, file.bytes
            ));
        }
        if meta.cells != file.cells {
            problem(format!(
                "the file has {} cells, the manifest states {}",
                meta.cells, file.cells
            ));
        }
        // Zero stands for a txn that no longer mattered.
        let too_old = meta.txn_min < file.txn_min && meta.txn_min != Txn::ZERO;
        if too_old || meta.txn_max > file.txn_max {
            problem(format!(
                "the file holds txns {} to {}, the manifest states {} to {}",
                meta.txn_min, meta.txn_max, file.txn_min, file.txn_max
            ));
        }
        // Rows of the file that its config does not name were rewritten or belong to
        // another tablet.
        let held = fragment.rows();
        let outside = |rows: &RowRange| file.rows.intersection(rows) != file.rows;
        if held.is_none_or(|held| outside(&held)) || outside(tablet) {
            problem("the manifest states rows that the file or the tablet does not have".into());
        }
    }
}
