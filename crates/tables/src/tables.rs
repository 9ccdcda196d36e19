//! All tables of a server: found by name, created, altered, dropped and backed up;
//! and where their rows are.

use std::path::Path;
use std::sync::Arc;

use stele_engine::schema::Schema;
use stele_engine::world::World;
use stele_engine::{
    Checkpoint, CommitBuilder, Durability, Options, Result, RowRange, Store, TableId, TabletInfo,
    Txn,
};

use crate::answer::Tenure;
use crate::local::Local;

/// Where a row is served.
///
/// A row that another server serves becomes a second variant, `There`, with that
/// server, the tablet and its load. Each service matches in one function, which the
/// compiler then points out.
pub enum Placement<'t> {
    /// By this process.
    Here(Local<'t>),
}

/// The tables of a server. A clone refers to the same tables.
#[derive(Clone)]
pub struct Tables {
    store: Arc<Store>,
    tenure: Tenure,
}

impl Tables {
    /// Returns the tables of an open store, all of whose rows this process serves.
    pub fn new(store: impl Into<Arc<Store>>) -> Tables {
        Tables { store: store.into(), tenure: Tenure::Always }
    }

    /// Opens the store in `dir`, creating it if it does not exist.
    pub fn open(dir: &Path, options: Options, world: World) -> Result<Tables> {
        Ok(Tables::new(Store::open(dir, options, world)?))
    }

    /// Creates a new store in `dir` from a backup and opens it. The backup's files are
    /// in `source`: the directory of the original store, or a copy of its fragments.
    pub fn restore(
        dir: &Path,
        backup: &Checkpoint,
        source: &Path,
        options: Options,
        world: World,
    ) -> Result<Tables> {
        Ok(Tables::new(Store::open_from(dir, backup, source, options, world)?))
    }

    /// Returns the id of these tables, unique and stable across restarts.
    pub fn store_id(&self) -> Result<u64> {
        Ok(self.store.configs()?.store_id)
    }

    /// Returns what opens the answers of these tables.
    #[inline]
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns where a row is served. Does not check that the table exists.
    #[inline]
    pub fn place(&self, table: TableId, _row: &[u8]) -> Placement<'_> {
        Placement::Here(Local::new(&self.store, table))
    }

    /// Returns the id of the named table.
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.store.table(name)
    }

    /// Returns the ids and names of all tables, ordered by id.
    pub fn all(&self) -> Vec<(TableId, String)> {
        self.store.tables()
    }

    pub fn schema(&self, table: TableId) -> Result<Arc<Schema>> {
        self.store.schema(table)
    }

    /// Creates a table of one tablet. Durable on return.
    pub fn create(&self, name: &str, schema: Schema) -> Result<TableId> {
        self.store.create_table(name, schema)
    }

    /// Creates a table whose tablets meet at the given rows, which must ascend. Durable
    /// on return.
    pub fn create_with_splits(
        &self,
        name: &str,
        schema: Schema,
        splits: Vec<Vec<u8>>,
    ) -> Result<TableId> {
        self.store.create_table_with_splits(name, schema, splits)
    }

    /// Returns the tablets of a table, in row order.
    pub fn tablets(&self, table: TableId) -> Result<Vec<TabletInfo>> {
        self.store.tablets(table)
    }

    /// Splits the tablet with `row` before that row. Returns whether it did: the row may
    /// already be the first of a tablet. Durable on return; readers and writers notice
    /// nothing.
    pub fn split(&self, table: TableId, row: &[u8]) -> Result<bool> {
        self.store.split(table, row)
    }

    /// Joins the two tablets that meet at `row`, flushing memory first if necessary.
    /// Durable on return; readers and writers notice nothing.
    pub fn join(&self, table: TableId, row: &[u8]) -> Result<()> {
        self.store.join(table, row)
    }

    /// Changes families and purge policies; groups cannot change. Dropping a family
    /// deletes its cells; those of the families in `emptied` are deleted as if each
    /// had been dropped and added again. Durable on return.
    pub fn alter(&self, table: TableId, schema: Schema, emptied: &[&[u8]]) -> Result<()> {
        self.store.alter_table_emptying(table, schema, emptied)
    }

    /// Drops a table and its rows. Durable on return; ids are never reused.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.store.drop_table(table)
    }

    /// Deletes all rows of a range in one commit, blocking this thread. Durable on
    /// return.
    pub fn drop_rows(&self, table: TableId, rows: &RowRange) -> Result<()> {
        let mut commit = CommitBuilder::new();
        commit.table(table).delete_range(rows);
        self.store.apply(&commit.finish(), Txn::MAX, Durability::Durable).map(drop)
    }

    /// Creates a backup of the given tables, all at the same txn. Its files stay until
    /// it is released, whatever happens to the tables.
    pub fn backup(&self, tables: &[TableId]) -> Result<Checkpoint> {
        self.store.checkpoint(tables)
    }

    /// Returns all backups, oldest first.
    pub fn backups(&self) -> Result<Vec<Checkpoint>> {
        self.store.checkpoints()
    }

    /// Releases a backup, and removes the files that only it needed.
    pub fn release_backup(&self, id: u64) -> Result<()> {
        self.store.release_checkpoint(id)
    }
}
