//! The tables of a store: create, drop, alter and list them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::checkpoint::groups_of;
use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::config::ConfigEdit;
use crate::error::Result;
use crate::schema::Schema;
use crate::tablet::{Publishing, Table};
use crate::txn::Txn;
use crate::workers::claims::Work;

impl Store {
    /// Creates a table. The table is durable on return.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<TableId> {
        self.create_table_with_splits(name, schema, Vec::new())
    }

    /// Creates a table whose tablets meet at the given rows, which must ascend.
    pub fn create_table_with_splits(
        &self,
        name: &str,
        schema: Schema,
        splits: Vec<Vec<u8>>,
    ) -> Result<TableId> {
        self.check_alone("create tables")?;
        for row in &splits {
            self.check_split_row(row)?;
        }
        Ok(self.engine.tables.create(name, Arc::new(schema), splits)?.id)
    }

    /// Drops a table and its data at once; `delete_table` keeps them for a while. Table
    /// ids are never reused.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.check_alone("drop tables")?;
        // A flush of all tables names them in one edit: none may be dropped
        // meanwhile.
        let external = self.engine.log.external();
        let _no_flush = external.map(|_| self.engine.claims.take(Work::FlushAll));
        let table = self.engine.tables.map.get(table)?;
        let _loads = table.lock_loads();
        let turn = table.publish();
        turn.check_exists()?;
        // Its commits are in the log and in memory until the config has forgotten it: no
        // more may be acknowledged, in case it has already.
        self.set_dropping(&table, true);
        let removed = self.engine.tables.remove(&table);
        removed.inspect_err(|_| self.set_dropping(&table, false))?;
        self.forget_work(&table);
        Ok(())
    }

    /// Forgets the failures of a table that is gone, and wakes writers that wait for its
    /// chains: they fail now.
    pub(super) fn forget_work(&self, table: &Table) {
        self.engine.failures.forget(table.id);
        self.engine.waiters.wake(Stage::Chains);
    }

    pub(super) fn set_dropping(&self, table: &Table, dropping: bool) {
        let _no_writers = self.engine.sequencer.lock();
        table.set_dropping(dropping);
    }

    /// Changes families, purge policies and groups, durably. Families may move between
    /// groups: no data is rewritten, and readers and writers notice nothing. Dropping a
    /// family deletes its cells, even if the family is added again later. An invalid schema
    /// is refused, and the table keeps the one that it has.
    pub fn alter_table(&self, table: TableId, schema: Schema) -> Result<()> {
        self.alter_table_emptying(table, schema, &[])
    }

    /// Like `alter_table`, but also deletes the cells of the families in
    /// `emptied`, as if each had been dropped and added again in one step.
    pub fn alter_table_emptying(
        &self,
        table: TableId,
        schema: Schema,
        emptied: &[&[u8]],
    ) -> Result<()> {
        self.check_alone("alter tables")?;
        let known = self.engine.tables.map.get(table)?;
        let before = known.version().schema.clone();
        if !before.keeps_groups(&schema) {
            self.regroup(&known, &schema, emptied)?;
            release_blocks(&known, &before);
            return Ok(());
        }
        if self.engine.log.external().is_some() {
            // A commit that is replayed after a crash gets a new txn and would
            // count as written after the change.
            self.flush(table)?;
        }
        let table = self.engine.tables.map.get(table)?;
        let groups = table.version().schema.groups().len();
        // A checkpoint takes the files of all groups at one txn: none may be added
        // meanwhile.
        let adds_groups = groups < schema.groups().len();
        let flushes = groups_of(&table).filter(|_| adds_groups);
        let flushes: BTreeSet<Work> = flushes.map(|of| self.engine.flush_work(&of)).collect();
        let _no_checkpoint: Vec<_> =
            flushes.into_iter().map(|work| self.engine.claims.take(work)).collect();
        let turn = table.publish();
        turn.check_exists()?;
        let mut done = false;
        while !done {
            done = self.try_alter(&turn, &table, &schema, emptied)?;
        }
        release_blocks(&table, &before);
        Ok(())
    }

    /// Replaces the schema in the config as of a new generation, and then for commits,
    /// which go on with that generation. Returns false if they have reached a newer one.
    fn try_alter(
        &self,
        turn: &Publishing<'_>,
        table: &Table,
        schema: &Schema,
        emptied: &[&[u8]],
    ) -> Result<bool> {
        let old = table.version().schema.clone();
        let configs = self.engine.tables.config.edit_with(|configs| {
            let base = Txn::base(configs.generation + 1);
            let schema = Arc::new(schema.clone().succeeding(&old, emptied, base));
            vec![ConfigEdit::TakeGeneration, ConfigEdit::SetSchema { table: table.id, schema }]
        })?;
        let changed = &configs.tables[&table.id];
        if old.groups().len() < changed.schema.groups().len() {
            self.engine.tables.settler.note_changed(table.id, &changed.tablets);
        }
        let schema = changed.schema.clone();
        let mut sequencer = self.engine.sequencer.lock();
        let raised = sequencer.raise(configs.generation);
        if raised {
            turn.set_schema(&schema, &self.engine.tables.resources.budget);
        }
        Ok(raised)
    }

    /// Returns the id of the named table.
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.engine.tables.map.named(name).map(|table| table.id)
    }

    /// Returns the ids and names of all tables, ordered by id.
    pub fn tables(&self) -> Vec<(TableId, String)> {
        self.engine.tables.map.all().values().map(|table| (table.id, table.name.clone())).collect()
    }

    pub fn schema(&self, table: TableId) -> Result<Arc<Schema>> {
        Ok(self.engine.tables.map.get(table)?.version().schema.clone())
    }
}

/// Leaves the blocks of groups that are no longer in-memory groups to the cache.
fn release_blocks(table: &Table, before: &Schema) {
    let version = table.pinned_version();
    if !before.groups().iter().any(|group| group.in_memory) {
        return;
    }
    for tablet in version.tablets.iter() {
        for (chain, group) in tablet.chains.iter().zip(version.schema.groups()) {
            let fragments = chain.links().filter_map(|link| link.open_fragment());
            fragments.filter(|_| !group.in_memory).for_each(|fragment| fragment.release_blocks());
        }
    }
}
