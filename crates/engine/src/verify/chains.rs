//! Checks the tablets and chains of the config, and every fragment that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::check::damage_or_fail;
use super::report::{FragmentReport, Problem, Report};
use crate::cache::BlockCache;
use crate::cell::rows::RowRange;
use crate::config::{
    Checkpoint, Configs, FileName, MANIFEST_FILE, Reference, TableConfig, TabletConfig, TabletId,
};
use crate::error::{Printable, Result};
use crate::fragment::Fragment;
use crate::tablet::{FRAGMENTS_DIR, file_facts};
use crate::txn::Txn;
use crate::world::Files;

pub fn check(
    files: &Arc<dyn Files>,
    dir: &Path,
    configs: &Configs,
    report: &mut Report,
) -> Result<()> {
    let mut check =
        ChainCheck { files, dir, report, named: BTreeMap::new(), tablets: BTreeSet::new() };
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
    /// The tablets checked so far.
    tablets: BTreeSet<TabletId>,
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
        for tablet in table.tablets.iter() {
            self.report.tablets += 1;
            if !self.tablets.insert(tablet.id) || tablet.id.number > configs.last_tablet {
                let id = tablet.id;
                self.manifest_problem(format!("table {name} has an invalid tablet id: {id}"));
            }
            if end.as_ref() != Some(&tablet.rows.start) || tablet.rows.is_empty() {
                let start = Printable::from(&tablet.rows.start[..]);
                self.manifest_problem(format!("the tablet of table {name} that starts at {start} does not follow the one before it"));
            }
            end = tablet.rows.end.clone();
            for group in 0..table.schema.groups().len() {
                self.chain(table, tablet, group, configs.incarnation)?;
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
            for tablet in table.tablets.iter() {
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
        of: &TableConfig,
        tablet: &TabletConfig,
        number: usize,
        incarnation: u64,
    ) -> Result<()> {
        let (table, group) = (&of.name, &of.schema.groups()[number].name);
        let (chain, rows) = (&tablet.chains[number], &tablet.rows);
        let flushed = of.flushed_of(tablet, number);
        let runs: Vec<&[Reference]> = chain.runs().collect();
        for (at, run) in runs.iter().enumerate() {
            let newer = runs[at + 1..].iter().copied().flatten();
            for (older, newer) in newer.flat_map(|newer| run.iter().map(move |o| (o, newer))) {
                let apart = !older.live_rows(rows).overlaps(&newer.live_rows(rows));
                if older.txn_max < newer.txn_min || apart {
                    continue;
                }
                self.manifest_problem(format!(
                    "a chain of table {table}, group {group}, is out of order: {} up to txn {} \
                     comes before {} from txn {}",
                    older.name, older.txn_max, newer.name, newer.txn_min
                ));
            }
        }
        if let Some(beyond) = chain.files.iter().find(|file| file.txn_max > flushed) {
            self.manifest_problem(format!(
                "{} holds txn {}, but its chain is flushed only through txn {}",
                beyond.name, beyond.txn_max, flushed
            ));
        }
        for file in &chain.files {
            if file.name.incarnation > incarnation {
                self.manifest_problem(format!(
                    "{} has an incarnation above that of the store",
                    file.name
                ));
            }
            let live = file.live_rows(rows);
            let counted = self.named.entry(file.name).or_default();
            let (first, twice) = (counted.is_empty(), counted.iter().any(|c| c.overlaps(&live)));
            counted.push(live);
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
        file: &Reference,
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
    fn compare(&mut self, fragment: &Fragment, file: &Reference, tablet: &RowRange) {
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
        let held = fragment.rows().unwrap_or(RowRange::new("", ""));
        let stated = file.facts.as_ref().is_none_or(|facts| facts.held == held);
        let live = file.live_rows(tablet);
        let explicit = file.rows.as_ref().is_none_or(|rows| rows.intersection(&held) == *rows);
        if !stated || !explicit || live.is_empty() || live.intersection(&held) != live {
            problem("the manifest states rows that the file does not have".into());
        }
        let facts = file_facts(meta, held);
        if file.facts.as_ref().is_some_and(|stated| *stated != facts) && stated {
            problem("the manifest states sizes or times that the file does not have".into());
        }
    }
}
