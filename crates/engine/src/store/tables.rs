//! The tables of a store: create, drop, alter and list them.

use std::sync::Arc;

use super::handle::Store;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::config::ConfigEdit;
use crate::error::Result;
use crate::schema::Schema;
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
        self.check_open()?;
        for row in &splits {
            self.check_split_row(row)?;
        }
        Ok(self.engine.tables.create(name, Arc::new(schema), splits)?.id)
    }

    /// Drops a table and its data. Table ids are never reused.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.check_open()?;
        // A flush of all tables names them in one edit: none may be dropped
        // meanwhile.
        let external = self.engine.log.external();
        let _no_flush = external.map(|_| self.engine.claims.take(Work::FlushAll));
        let _no_writers = self.engine.sequencer.lock();
        let table = self.engine.tables.map.get(table)?;
        self.engine.tables.remove(&table)?;
        self.engine.failures.forget(table.id);
        // Writers waiting for its chains now fail.
        self.engine.waiters.wake(Stage::Chains);
        Ok(())
    }

    /// Changes families and purge policies; groups cannot change. Dropping a
    /// family deletes its cells, even if the family is added again later.
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
        self.check_open()?;
        if self.engine.log.external().is_some() {
            // A commit that is replayed after a crash gets a new txn and would
            // count as written after the change.
            self.flush(table)?;
        }
        let _no_writers = self.engine.sequencer.lock();
        let table = self.engine.tables.map.get(table)?;
        let (old, now) = (&table.version().schema, self.engine.latest());
        let schema = Arc::new(schema.succeeding(old, emptied, now));
        let edit = ConfigEdit::SetSchema { table: table.id, schema: schema.clone() };
        self.engine.tables.config.edit(&[edit])?;
        table.set_schema(&schema);
        Ok(())
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
