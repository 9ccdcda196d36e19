//! Changes of the groups of a table while it is read and written. Only references to files
//! change, in one edit of the config; what is in memory moves to its new group.

use std::sync::Arc;

use super::handle::Store;
use super::waiters::Stage;
use crate::config::{self, ConfigEdit, FileContents, FileName};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::tablet::{
    GroupMemory, Publishing, Table, TableVersion, contents_of, regrouped_memory, regrouped_tablets,
};
use crate::txn::Txn;
use crate::world::WaitScope;

/// Memory is flushed again before the groups change if it is larger than this: writers
/// wait while the rest is divided.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// How often memory is flushed because of that.
const FLUSHES_MAX: usize = 4;

/// A change of groups that has begun.
struct Regrouping<'a> {
    table: &'a Arc<Table>,
    turn: Publishing<'a>,
    schema: &'a Schema,
    emptied: &'a [&'a [u8]],
    /// Commits up to this txn are in files, in all groups.
    flushed: Txn,
    contents: std::collections::BTreeMap<FileName, FileContents>,
    /// Whether the config has the new groups.
    recorded: bool,
}

impl Store {
    /// Replaces the schema with one that has other groups.
    pub(super) fn regroup(
        &self,
        table: &Arc<Table>,
        schema: &Schema,
        emptied: &[&[u8]],
    ) -> Result<()> {
        let engine = &self.engine;
        if engine.log.external().is_some() {
            let what = "the groups of a table without a log of its own cannot change";
            return Err(Error::InvalidSchema(what.into()));
        }
        table.version().schema.check_regroup(schema)?;
        // The tablets are neither loaded nor unloaded meanwhile, and nobody else flushes:
        // all groups are flushed up to the same txn.
        let _loads = table.lock_loads();
        let tables = std::slice::from_ref(table);
        let _flushes = engine.claim_flushes(tables);
        let mut flushed = self.flush_sealed(tables)?;
        for _ in 1..FLUSHES_MAX {
            if memory_bytes(&table.version()) <= MEMORY_BYTES_MAX {
                break;
            }
            flushed = self.flush_sealed(tables)?;
        }
        // Most files are opened, and fetched, before others have to wait.
        let _wait = WaitScope::enter();
        contents_of(&table.pinned_version().tablets)?;
        let turn = table.publish();
        turn.check_exists()?;
        let contents = contents_of(&turn.tablets())?;
        let mut change =
            Regrouping { table, turn, schema, emptied, flushed, contents, recorded: false };
        while !self.try_regroup(&mut change)? {}
        drop(change);
        engine.failures.forget(table.id);
        // Chains may be shorter, or due for compaction.
        engine.waiters.wake(Stage::Chains);
        engine.claims.raise();
        Ok(())
    }

    /// Records the new groups as of a new generation, then shows them. Returns false if
    /// commits have reached a newer generation, so that it has to be taken again.
    fn try_regroup(&self, change: &mut Regrouping<'_>) -> Result<bool> {
        let tables = &self.engine.tables;
        let before: Arc<TableVersion> = change.table.pinned_version();
        let id = change.table.id;
        let configs = tables.config.edit_with(|configs| {
            let base = Txn::base(configs.generation + 1);
            let schema = change.schema.clone().succeeding(&before.schema, change.emptied, base);
            let schema = Arc::new(schema);
            let edit = if change.recorded {
                ConfigEdit::SetSchema { table: id, schema }
            } else {
                let mint_unit = || tables.fragments.mint_unit();
                ConfigEdit::Regroup(config::regroup(
                    &configs.tables[&id],
                    &schema,
                    change.flushed,
                    &change.contents,
                    &mint_unit,
                ))
            };
            vec![ConfigEdit::TakeGeneration, edit]
        })?;
        change.recorded = true;
        let config = &configs.tables[&id];
        tables.settler.note_changed(id, &config.tablets);
        let tablets = regrouped_tablets(&before.tablets, config)?;
        let (budget, now) = (&tables.resources.budget, tables.world.clock.elapsed());
        let mut sequencer = self.engine.sequencer.lock();
        if !sequencer.raise(configs.generation) {
            return Ok(false);
        }
        let memory = regrouped_memory(&before, &config.schema, change.flushed, budget, now)?;
        change.turn.show_groups(&config.schema, &tablets, &memory);
        drop(sequencer);
        change.turn.release(&before.tablets);
        Ok(true)
    }
}

fn memory_bytes(version: &TableVersion) -> usize {
    let fragments = version.memory.iter().flat_map(GroupMemory::fragments);
    fragments.filter(|fragment| !fragment.is_empty()).map(|fragment| fragment.bytes()).sum()
}
