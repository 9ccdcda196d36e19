//! All tables of a server: found by name, created, altered and dropped; and where their
//! rows are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::config::Configs;
use stele_engine::schema::Schema;
use stele_engine::verify::TableCheck;
use stele_engine::world::World;
use stele_engine::{
    Checkpoint, Collected, CommitBuilder, Durability, Options, Result, RowRange, Store, TableId,
    TabletInfo, TabletSummary, Txn,
};

use crate::answer::Tenure;
use crate::lease::Lease;
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
    pub(crate) store: Arc<Store>,
    tenure: Tenure,
    pub(crate) keep_deleted: Duration,
}

impl Tables {
    /// Returns the tables of an open store, all of whose rows this process serves.
    pub fn new(store: impl Into<Arc<Store>>) -> Tables {
        Tables { store: store.into(), tenure: Tenure::Always, keep_deleted: Duration::ZERO }
    }

    /// Returns the tables of a server in a cluster, which serves its rows as long as it has
    /// its lease.
    pub(crate) fn of_server(store: Arc<Store>, lease: Arc<Lease>) -> Tables {
        Tables { store, tenure: Tenure::Leased(lease), keep_deleted: Duration::ZERO }
    }

    /// Keeps deleted tables for this long, so that they can be brought back. Zero, which
    /// is the default, removes them at once.
    pub fn keeping_deleted(self, keep_deleted: Duration) -> Tables {
        Tables { keep_deleted, ..self }
    }

    /// Opens the store in `dir`, creating it if it does not exist.
    pub fn open(dir: &Path, options: Options, world: World) -> Result<Tables> {
        Ok(Tables::new(Store::open(dir, options, world)?))
    }

    /// Creates a new store in `dir` from a checkpoint and opens it. The checkpoint's files
    /// are in `source`: the directory of the original store, or a copy of its fragments.
    pub fn open_from(
        dir: &Path,
        checkpoint: &Checkpoint,
        source: &Path,
        options: Options,
        world: World,
    ) -> Result<Tables> {
        Ok(Tables::new(Store::open_from(dir, checkpoint, source, options, world)?))
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

    /// Whether the files are in an object store, so that reads may miss.
    #[inline]
    pub fn has_object_store(&self) -> bool {
        self.store.has_object_store()
    }

    /// Deletes unused files of an object store: see [`Store::collect`].
    pub fn collect(&self, dry_run: bool) -> Result<Option<Collected>> {
        self.store.collect(dry_run)
    }

    /// Returns the tablets of a table, in row order.
    pub fn tablets(&self, table: TableId) -> Result<Vec<TabletInfo>> {
        self.store.tablets(table)
    }

    /// Returns the number of tablets of a table.
    pub fn tablet_count(&self, table: TableId) -> Result<usize> {
        self.store.tablet_count(table)
    }

    /// Returns how each table is divided into tablets, ordered by table id.
    pub fn tablet_summaries(&self) -> Vec<TabletSummary> {
        self.store.tablet_summaries()
    }

    /// Flushes a table's memory to disk, blocking this thread.
    pub fn flush(&self, table: TableId) -> Result<()> {
        self.store.flush(table)
    }

    /// Compacts each chain of the tablet with `row` into one run, blocking this thread.
    /// Returns the row at which to continue with the next tablet; `None` after the last
    /// one.
    pub fn compact_tablet(&self, table: TableId, row: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.compact_tablet(table, row)
    }

    /// Starts a check of the files that the tablets of a table refer to now.
    pub fn check(&self, table: TableId) -> Result<TableCheck> {
        self.store.check_table(table)
    }

    /// Returns the config: tables, tablets and files that exist.
    pub fn configs(&self) -> Result<Arc<Configs>> {
        self.store.configs()
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

    /// Loads the unloaded tablets that have rows in a range, blocking this thread.
    /// Returns how many; those that are loaded do not change. Durable on return.
    pub fn load(&self, table: TableId, rows: &RowRange) -> Result<usize> {
        self.store.load(table, std::slice::from_ref(rows))
    }

    /// Unloads the tablets that have rows in a range, blocking this thread: memory is
    /// flushed, and then their rows fail with `TabletNotLoaded` until they are loaded
    /// again, also after a restart. Returns how many; those that are unloaded do not
    /// change. Durable on return.
    pub fn unload(&self, table: TableId, rows: &RowRange) -> Result<usize> {
        self.store.unload(table, std::slice::from_ref(rows))
    }

    /// Changes families and purge policies; of groups, only hidden ones can be added.
    /// Dropping a family deletes its cells; those of the families in `emptied` are
    /// deleted as if each had been dropped and added again. Durable on return.
    pub fn alter(&self, table: TableId, schema: Schema, emptied: &[&[u8]]) -> Result<()> {
        self.store.alter_table_emptying(table, schema, emptied)
    }

    /// Drops a table and its rows at once. Durable on return; ids are never reused.
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

    /// Creates a checkpoint of the given tables, all at the same txn. Its files stay until
    /// it is released, whatever happens to the tables.
    pub fn checkpoint(&self, tables: &[TableId]) -> Result<Checkpoint> {
        self.store.checkpoint(tables)
    }

    /// Returns all checkpoints, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.store.checkpoints()
    }

    /// Releases a checkpoint, and removes the files that only it needed.
    pub fn release_checkpoint(&self, id: u64) -> Result<()> {
        self.store.release_checkpoint(id)
    }
}
