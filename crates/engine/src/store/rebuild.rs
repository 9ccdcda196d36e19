//! Recovery of the log of another server (R8.5): its commits are replayed into memory of
//! their own, beside the tables of this store, and become files of the tablets that were
//! claimed. Nobody reads or writes these tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::handle::Store;
use super::recovery::{ReplayLog, TABLES_STREAM, insert, no_limits};
use crate::budget::MemoryBudget;
use crate::cell::commit::{Commit, TableId};
use crate::config::{
    Configs, FileName, TableConfig, TableState, TabletConfig, TabletConfigs, TabletId,
    VolatileConfig, filled,
};
use crate::error::{Error, Result};
use crate::log::objects::LogObject;
use crate::resources::Resources;
use crate::rules::Rules;
use crate::tablet::{FragmentDir, Tables, Tablet};
use crate::txn::Txn;
use crate::workers::flush::{self, FlushTarget, Readiness};
use crate::write::{Prepared, Unknown};

/// Memory of a replay. More is flushed.
const BUDGET_BYTES: usize = 64 << 20;

/// A tablet that is rebuilt: its row as it was claimed.
#[derive(Clone, Debug)]
pub struct ClaimedTablet {
    pub table: TableId,
    pub config: Arc<TabletConfig>,
    /// Nothing in earlier slots of the log belongs to it.
    pub from: u64,
}

/// Tablets into which a log is replayed.
pub struct Rebuilding {
    tables: Tables,
    claimed: Vec<ClaimedTablet>,
    from: BTreeMap<TabletId, u64>,
    last: Txn,
    is_finished: bool,
}

/// Tablets as they are after a replay, in the order in which they were given.
pub struct Rebuilt {
    pub configs: Vec<TabletConfig>,
    /// The new files, which no row names yet.
    pub files: PendingFiles,
}

/// New files whose names count as pending.
pub struct PendingFiles {
    fragments: Arc<FragmentDir>,
    names: Vec<FileName>,
}

impl PendingFiles {
    /// Records that rows name the files, or never will.
    pub fn outcome_known(self) {
        self.names.into_iter().for_each(|name| self.fragments.outcome_known_of(name));
    }
}

impl Store {
    /// Starts to rebuild tablets from the log of another server. Their tables must be known.
    pub fn rebuild(&self, claimed: Vec<ClaimedTablet>, rules: Rules) -> Result<Rebuilding> {
        self.check_open()?;
        let engine = &self.engine;
        let epoch = engine.volatile_config()?;
        let known = crate::config::ConfigStore::read(epoch)?;
        let mut configs = Configs { incarnation: known.incarnation, ..Configs::default() };
        let mut by_table: BTreeMap<TableId, Vec<Arc<TabletConfig>>> = BTreeMap::new();
        for ClaimedTablet { table, config, .. } in &claimed {
            let mut config = TabletConfig::clone(config);
            // Its chain can be changed, although nobody serves it.
            config.loaded = true;
            if !rules.skip_flushed {
                config.chains.iter_mut().for_each(|chain| chain.flushed = Txn::ZERO);
            }
            by_table.entry(*table).or_default().push(Arc::new(config));
        }
        for (id, mut tablets) in by_table {
            let table = engine.tables.map.get(id)?;
            let schema = table.version().schema.clone();
            let groups = schema.groups().len();
            if tablets.iter().any(|tablet| tablet.chains.len() != groups) {
                let what = "a row does not match the groups of the schema";
                return Err(Error::EditRefused { table: id.0, what });
            }
            tablets.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
            // Nothing of the other rows is replayed: they count as flushed.
            let tablets = filled(&tablets, groups, Txn::MAX);
            let config = TableConfig {
                id,
                name: table.name.clone(),
                schema,
                state: TableState::Active,
                flushed: vec![Txn::ZERO; groups],
                tablets: TabletConfigs::new(tablets),
            };
            configs.tables.insert(id, Arc::new(config));
        }
        let resources = Resources {
            budget: MemoryBudget::new(BUDGET_BYTES),
            ..engine.tables.resources.clone()
        };
        let config = Arc::new(VolatileConfig::new(configs, None));
        let tables = engine.tables.beside(resources, Box::new(config))?;
        let from = claimed.iter().map(|tablet| (tablet.config.id, tablet.from)).collect();
        Ok(Rebuilding { tables, claimed, from, last: Txn::ZERO, is_finished: false })
    }
}

impl Rebuilding {
    /// Replays a slot. Slots come in order. Blocks while memory is flushed.
    pub fn replay(&mut self, object: &LogObject) -> Result<()> {
        let slot = object.at.slot;
        for entry in object.entries()? {
            if entry.stream != TABLES_STREAM {
                continue;
            }
            let damaged = |what: String| Error::data_loss(&object.path(), 0, what);
            let txn = Txn::from_raw(entry.index).filter(|&txn| txn > self.last);
            let txn = txn.ok_or_else(|| damaged(format!("txn {} is out of order", entry.index)))?;
            let commit = Commit::from_bytes(entry.payload.clone());
            let unknown = Unknown::Dropped { last_table: TableId(u32::MAX) };
            let (known, folds) = (self.tables.map.all(), &self.tables.folds);
            let mut prepared = Prepared::new(&commit, &known, &no_limits(), folds, unknown)
                .map_err(|error| damaged(error.to_string()))?;
            let begins = |tablet: &Tablet| self.from.get(&tablet.id).is_some_and(|at| *at <= slot);
            for table in &mut prepared.tables {
                insert(&self.tables, table, txn, &commit, Some(&begins));
            }
            self.last = txn;
        }
        let free = |_: &FlushTarget| Readiness::Free;
        while let Some((target, _)) = flush::due(&self.tables, &|_| 0, &free, false) {
            if !self.flush(&target)? {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self, target: &FlushTarget) -> Result<bool> {
        flush::flush(&self.tables, target, &ReplayLog { tables: &self.tables, last: self.last })
    }

    /// Completes the files. Returns the tablets with these files, and with `flushed` at the
    /// last txn that was replayed. Blocks.
    pub fn finish(mut self) -> Result<Rebuilt> {
        for table in self.tables.map.all().values() {
            for group in 0..table.version().memory.len() {
                self.flush(&FlushTarget { table: table.clone(), group })?;
            }
        }
        let built = self.tables.config.read()?;
        let mut configs = Vec::with_capacity(self.claimed.len());
        for ClaimedTablet { table, config, .. } in &self.claimed {
            let mut rebuilt = (**built.tables[table].tablets.of(&config.rows.start)).clone();
            for (chain, before) in rebuilt.chains.iter_mut().zip(&config.chains) {
                chain.flushed = chain.flushed.max(before.flushed).max(self.last);
            }
            configs.push(rebuilt);
        }
        let names = self.new_files()?;
        self.is_finished = true;
        let fragments = self.tables.fragments.clone();
        Ok(Rebuilt { configs, files: PendingFiles { fragments, names } })
    }

    /// Returns the files that were written.
    fn new_files(&self) -> Result<Vec<FileName>> {
        let built = self.tables.config.read()?;
        let before = self.claimed.iter().flat_map(|tablet| tablet.config.files());
        let before: BTreeSet<FileName> = before.map(|file| file.name).collect();
        let names: BTreeSet<FileName> = built.files().map(|file| file.name).collect();
        Ok(names.difference(&before).copied().collect())
    }
}

impl Drop for Rebuilding {
    /// Nobody has seen the files of a replay that was given up.
    fn drop(&mut self) {
        if let (false, Ok(names)) = (self.is_finished, self.new_files()) {
            PendingFiles { fragments: self.tables.fragments.clone(), names }.outcome_known();
        }
    }
}
