//! The registry of tables: every request looks up its table here, and every
//! change of a table is made durable and published here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use stele_engine::schema::Schema;
use stele_engine::{RowRange, TableId};
use stele_tables::{Local, Placement, Tenure};

use super::Definition;
use crate::error::{Error, Result};
use crate::name::TableName;

/// An immutable version of a table; a change creates a new one.
#[derive(Debug)]
pub struct Table {
    pub id: TableId,
    /// `projects/P/instances/I/tables/T`.
    pub name: String,
    pub definition: Definition,
    /// The engine's schema of that definition. Requests validated against the
    /// definition are applied only under this schema.
    pub schema: Arc<Schema>,
}

/// A definition that replaces a table's current one.
#[derive(Debug)]
pub struct Successor {
    pub definition: Definition,
    /// Families that were dropped and created again in between: both definitions
    /// have them, but their cells are gone.
    pub emptied: BTreeSet<String>,
}

/// All tables of a server whose names are resource names. Other tables belong to
/// other services.
pub struct Tables {
    tables: stele_tables::Tables,
    store_id: u64,
    by_name: ArcSwap<HashMap<String, Arc<Table>>>,
    /// Held while tables are created, changed or dropped.
    changing: Mutex<()>,
}

impl Tables {
    pub fn open(tables: stele_tables::Tables) -> Result<Tables> {
        let (store_id, by_name) = (tables.store_id()?, ArcSwap::default());
        let tables = Tables { tables, store_id, by_name, changing: Mutex::new(()) };
        tables.adopt()?;
        Ok(tables)
    }

    /// Publishes tables that were created without this registry: restored from backups,
    /// or undeleted.
    pub fn adopt(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let mut added = Vec::new();
        let known = self.by_name.load();
        for (id, name) in self.tables.all() {
            if !name.starts_with("projects/") || known.contains_key(&name) {
                continue;
            }
            let schema = self.tables.schema(id)?;
            let definition = Definition::from_schema(&name, &schema)?;
            added.push((name.clone(), Arc::new(Table { id, name, definition, schema })));
        }
        self.publish(|tables| tables.extend(added));
        Ok(())
    }

    /// Returns a table that has no resource name, with its schema.
    pub(crate) fn unlisted(&self, name: &str) -> Result<Option<(TableId, Arc<Schema>)>> {
        let Some(id) = self.tables.table(name) else { return Ok(None) };
        Ok(Some((id, self.tables.schema(id)?)))
    }

    /// Changes a table that has no resource name.
    pub(crate) fn alter_unlisted(&self, table: TableId, schema: Schema) -> Result<()> {
        Ok(self.tables.alter(table, schema, &[])?)
    }

    /// Removes a table that has no resource name.
    pub(crate) fn drop_unlisted(&self, table: TableId) -> Result<()> {
        Ok(self.tables.drop_table(table)?)
    }

    /// Returns access to a table at a row. This process serves all rows; the calls of
    /// a server that serves some of them will be routed from here.
    #[inline]
    pub(crate) fn local(&self, table: TableId, row: &[u8]) -> Local<'_> {
        let Placement::Here(local) = self.tables.place(table, row);
        local
    }

    /// Returns the tables as the server serves them.
    pub(crate) fn served(&self) -> &stele_tables::Tables {
        &self.tables
    }

    /// Returns what opens the answers of [`Tables::local`].
    #[inline]
    pub(crate) fn tenure(&self) -> &Tenure {
        self.tables.tenure()
    }

    /// Returns the unique id of the store, which is stable across reopening.
    pub fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Looks up a table by resource name. Called by every data request: it takes
    /// no lock and does not allocate.
    pub fn get(&self, name: &str) -> Result<Arc<Table>> {
        if let Some(table) = self.by_name.load().get(name) {
            return Ok(table.clone());
        }
        TableName::parse(name)?;
        Err(Error::NotFound(format!("Table not found: {name}")))
    }

    /// Returns all tables, sorted by name.
    pub fn all(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.by_name.load().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Creates a table. Durable on return.
    pub fn create(&self, name: &str, definition: Definition) -> Result<Arc<Table>> {
        TableName::parse(name)?;
        let _changing = self.changing.lock();
        if self.by_name.load().contains_key(name) {
            return Err(Error::Exists(format!("Table already exists: {name}")));
        }
        let splits = definition.splits.clone();
        let id = self.tables.create_with_splits(name, definition.schema()?, splits)?;
        let schema = self.tables.schema(id)?;
        let table = Arc::new(Table { id, name: name.into(), definition, schema });
        self.publish(|tables| tables.insert(name.into(), table.clone()));
        Ok(table)
    }

    /// Replaces a table's definition with the result of `change`. Durable on
    /// return.
    pub fn alter(
        &self,
        name: &str,
        change: impl FnOnce(&Definition) -> Result<Successor>,
    ) -> Result<Arc<Table>> {
        let _changing = self.changing.lock();
        let old = self.get(name)?;
        let successor = change(&old.definition)?;
        self.replace(&old, successor)
    }

    /// Adds the hidden family of idempotency tokens to a table that lacks it. Durable
    /// on return.
    pub(crate) fn keep_tokens(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let old = self.get(name)?;
        if !old.definition.keeps_tokens {
            let definition = Definition { keeps_tokens: true, ..old.definition.clone() };
            self.replace(&old, Successor { definition, emptied: BTreeSet::new() })?;
        }
        Ok(())
    }

    /// Replaces a table. The caller excludes other changes.
    fn replace(&self, old: &Table, successor: Successor) -> Result<Arc<Table>> {
        let Successor { definition, emptied } = successor;
        let emptied: Vec<&[u8]> = emptied.iter().map(|family| family.as_bytes()).collect();
        self.tables.alter(old.id, definition.schema()?, &emptied)?;
        let schema = self.tables.schema(old.id)?;
        let name = old.name.clone();
        let table = Arc::new(Table { id: old.id, name: name.clone(), definition, schema });
        self.publish(|tables| tables.insert(name, table.clone()));
        Ok(table)
    }

    /// Reads the definition of a table again, after a change in progress. If it is
    /// invalid, the previous one stays in use.
    pub fn reload(&self, name: &str) -> Result<Arc<Table>> {
        let _changing = self.changing.lock();
        let old = self.get(name)?;
        let schema = self.tables.schema(old.id)?;
        if Arc::ptr_eq(&schema, &old.schema) {
            return Ok(old);
        }
        let definition = Definition::from_schema(name, &schema)?;
        let table = Arc::new(Table { id: old.id, name: name.into(), definition, schema });
        self.publish(|tables| tables.insert(name.into(), table.clone()));
        Ok(table)
    }

    /// Reads the definitions of all tables again. An invalid one is ignored: the previous
    /// one stays in use. Returns the names of these tables and what is wrong.
    pub fn check_definitions(&self) -> Vec<(String, Error)> {
        let known = self.by_name.load_full();
        let check = |name: &String| match self.reload(name) {
            // Dropped meanwhile.
            Ok(_) | Err(Error::NotFound(_)) => None,
            Err(error) => Some((name.clone(), error)),
        };
        known.keys().filter_map(check).collect()
    }

    /// Deletes a table, unless it is protected. Its rows are kept as long as the server
    /// keeps deleted tables. Durable on return.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let table = self.get(name)?;
        if table.definition.deletion_protection {
            return Err(Error::Precondition(format!(
                "Table {name} cannot be deleted: it has deletion protection"
            )));
        }
        self.tables.delete(table.id)?;
        self.publish(|tables| tables.remove(name));
        Ok(())
    }

    /// Deletes all rows of a range in one commit. Durable on return.
    pub fn drop_rows(&self, table: &Table, rows: &RowRange) -> Result<()> {
        Ok(self.tables.drop_rows(table.id, rows)?)
    }

    /// Waits for a change of tables that is in progress. Requests that begin
    /// afterwards see it.
    pub fn wait_for_changes(&self) {
        drop(self.changing.lock());
    }

    fn publish<T>(&self, change: impl FnOnce(&mut HashMap<String, Arc<Table>>) -> T) {
        let mut tables = HashMap::clone(&self.by_name.load());
        change(&mut tables);
        self.by_name.store(Arc::new(tables));
    }
}
