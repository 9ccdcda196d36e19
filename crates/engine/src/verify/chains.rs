//! Checks the tablets and chains of the config, and collects the files that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::NamedFile;
use super::report::{Problem, Report};
use crate::cell::rows::RowRange;
use crate::config::{
    BackupOrigin, Checkpoint, Configs, FileName, MANIFEST_FILE, Reference, TableConfig, TableState,
    TabletConfig, TabletId,
};
use crate::error::Printable;
use crate::txn::Txn;

/// What is in use of a file.
struct InUse {
    rows: RowRange,
    /// `None` for all.
    families: Option<Vec<Vec<u8>>>,
}

impl InUse {
    fn overlaps(&self, other: &InUse) -> bool {
        let families = match (&self.families, &other.families) {
            (Some(own), Some(others)) => own.iter().any(|family| others.contains(family)),
            (Some(some), None) | (None, Some(some)) => !some.is_empty(),
            (None, None) => true,
        };
        families && self.rows.overlaps(&other.rows)
    }
}

/// Checks all tables, backups, deleted tables and checkpoints. Returns each file that they
/// name once.
pub fn check(dir: &Path, configs: &Configs, report: &mut Report) -> Vec<NamedFile> {
    let mut check = ChainCheck::new(dir, report);
    for table in configs.tables.values() {
        check.table(table, configs);
    }
    for checkpoint in configs.checkpoints.values() {
        check.checkpoint(checkpoint);
    }
    check.files
}

/// Checks one table. Returns each file that it names once.
pub fn check_table(
    dir: &Path,
    table: &TableConfig,
    configs: &Configs,
    report: &mut Report,
) -> Vec<NamedFile> {
    let mut check = ChainCheck::new(dir, report);
    check.table(table, configs);
    check.files
}

struct ChainCheck<'a> {
    dir: &'a Path,
    report: &'a mut Report,
    /// The files found so far.
    named: BTreeSet<FileName>,
    /// The same files, in the order in which they were found.
    files: Vec<NamedFile>,
    /// The files of the present table, and what is in use of each. Other tables may share
    /// files: backups, and tables that were restored from them.
    counted: BTreeMap<FileName, Vec<InUse>>,
    /// The tablets checked so far.
    tablets: BTreeSet<TabletId>,
}

impl<'a> ChainCheck<'a> {
    fn new(dir: &'a Path, report: &'a mut Report) -> ChainCheck<'a> {
        let (named, files, tablets) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        ChainCheck { dir, report, named, files, counted: BTreeMap::new(), tablets }
    }

    /// Reports a contradiction in the manifest.
    fn manifest_problem(&mut self, what: String) {
        let path = self.dir.join(MANIFEST_FILE);
        self.report.problems.push(Problem::new(&path, 0, what));
    }

    fn table(&mut self, table: &TableConfig, configs: &Configs) {
        match &table.state {
            TableState::Active => self.report.tables += 1,
            TableState::Backup(origin) => {
                self.report.backups += 1;
                self.backup(table, origin, configs);
            }
            TableState::Deleted { .. } => self.report.deleted_tables += 1,
        }
        self.counted.clear();
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
                self.chain(table, tablet, group, configs.incarnation);
            }
        }
        if end.is_some() {
            self.manifest_problem(format!(
                "the tablets of table {name} do not cover its last rows"
            ));
        }
    }

    /// Checks what a backup states of its origin.
    fn backup(&mut self, backup: &TableConfig, origin: &BackupOrigin, configs: &Configs) {
        let name = &backup.name;
        if origin.table >= backup.id {
            let of = origin.table.0;
            self.manifest_problem(format!("backup {name} is older than its table, number {of}"));
        }
        if origin.txn > Txn::base(configs.generation + 1) {
            let txn = origin.txn;
            self.manifest_problem(format!("backup {name} has txn {txn}, which is not assigned"));
        }
        if let Some(beyond) = backup.files().find(|file| file.txn_max > origin.txn) {
            self.manifest_problem(format!(
                "{} holds txn {}, but backup {name} was created at txn {}",
                beyond.name, beyond.txn_max, origin.txn
            ));
        }
    }

    /// Adds the files that only a checkpoint keeps.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        for table in &checkpoint.tables {
            for tablet in table.tablets.iter() {
                for (chain, group) in tablet.chains.iter().zip(table.schema.groups()) {
                    for file in &chain.files {
                        if self.named.insert(file.name) {
                            self.files.push(NamedFile {
                                file: file.clone(),
                                tablet: tablet.rows.clone(),
                                table: table.name.clone(),
                                group: group.name.clone(),
                            });
                        }
                    }
                }
            }
        }
    }

    fn chain(&mut self, of: &TableConfig, tablet: &TabletConfig, number: usize, incarnation: u64) {
        let (table, group) = (&of.name, &of.schema.groups()[number].name);
        let (chain, rows) = (&tablet.chains[number], &tablet.rows);
        let flushed = of.flushed_of(tablet, number);
        let runs: Vec<&[Reference]> = chain.runs().collect();
        for (at, run) in runs.iter().enumerate() {
            let newer = runs[at + 1..].iter().copied().flatten();
            for (older, newer) in newer.flat_map(|newer| run.iter().map(move |o| (o, newer))) {
                let apart = !older.live_rows(rows).overlaps(&newer.live_rows(rows));
                // What comes from several groups has a common unit.
                let united = older.unit != 0 && older.unit == newer.unit;
                if older.txn_max < newer.txn_min || apart || united {
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
            let in_use = InUse { rows: file.live_rows(rows), families: file.families.clone() };
            let first = self.named.insert(file.name);
            let counted = self.counted.entry(file.name).or_default();
            let twice = counted.iter().any(|c| c.overlaps(&in_use));
            counted.push(in_use);
            if twice {
                self.manifest_problem(format!(
                    "the manifest lists {} twice for the same rows",
                    file.name
                ));
            }
            if first {
                self.files.push(NamedFile {
                    file: file.clone(),
                    tablet: rows.clone(),
                    table: table.clone(),
                    group: group.clone(),
                });
            }
        }
    }
}
