//! The registry of tables: every request looks up its table here, and every
//! change of a table is made durable and published here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use stele_engine::schema::Schema;
use stele_engine::{RowRange, TableId};
use stele_tables::{Local, Placement, Tenure};

use super::Definition;
use crate::authorized::Views;
use crate::error::{Error, Result};
use crate::instance::Instances;
use crate::name::TableName;
use crate::records::Records;

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

/// Makes the changes of tables that several servers share. A change is in use by this
/// registry, and by all live servers, when it returns.
pub trait SharedTables: Send + Sync {
    /// Returns the id of all tables together.
    fn store_id(&self) -> u64;

    fn create(&self, name: &str, schema: Schema, splits: &[Vec<u8>]) -> Result<()>;

    fn alter(&self, table: TableId, schema: Schema) -> Result<()>;

    fn drop_table(&self, table: TableId) -> Result<()>;
}

/// All tables of a server whose names are resource names. Other tables belong to
/// other services.
pub struct Tables {
    tables: stele_tables::Tables,
    store_id: u64,
    by_name: ArcSwap<HashMap<String, Arc<Table>>>,
    records: Records,
    views: Views,
    /// Whether instances, clusters and app profiles have to be created.
    strict: AtomicBool,
    /// Held while tables are created, changed or dropped.
    changing: Mutex<()>,
    /// Set if other servers have the same tables.
    shared: Option<Arc<dyn SharedTables>>,
}

impl Tables {
    pub fn open(tables: stele_tables::Tables) -> Result<Tables> {
        let tables = Tables::of(tables.store_id()?, Records::open(tables.clone())?, tables, None)?;
        tables.adopt()?;
        Ok(tables)
    }

    fn of(
        store_id: u64,
        records: Records,
        tables: stele_tables::Tables,
        shared: Option<Arc<dyn SharedTables>>,
    ) -> Result<Tables> {
        Ok(Tables {
            tables,
            store_id,
            by_name: ArcSwap::default(),
            views: Views::open(&records)?,
            records,
            strict: AtomicBool::new(false),
            changing: Mutex::new(()),
            shared,
        })
    }

    /// Opens tables that this server shares with others.
    pub fn open_shared(
        tables: stele_tables::Tables,
        shared: Arc<dyn SharedTables>,
    ) -> Result<Tables> {
        let records = Records::unsupported(tables.clone());
        let tables = Tables::of(shared.store_id(), records, tables, Some(shared))?;
        tables.refresh()?;
        Ok(tables)
    }

    /// Publishes the tables as they are now, after they were changed by others. A table
    /// whose definition is damaged is left out, and the first such error is returned.
    pub fn refresh(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let known = self.by_name.load();
        let (mut next, mut outcome) = (HashMap::new(), Ok(()));
        for (id, name) in self.tables.all() {
            if !name.starts_with("projects/") {
                continue;
            }
            let schema = self.tables.schema(id)?;
            let same = known.get(&name);
            let same = same.filter(|it| it.id == id && Arc::ptr_eq(&it.schema, &schema));
            let table = match same {
                Some(table) => table.clone(),
                None => match Definition::from_schema(&name, &schema) {
                    Ok(definition) => {
                        Arc::new(Table { id, name: name.clone(), definition, schema })
                    }
                    Err(error) => {
                        outcome = outcome.and(Err(error));
                        continue;
                    }
                },
            };
            next.insert(name, table);
        }
        self.by_name.store(Arc::new(next));
        outcome
    }

    /// Requires instances, clusters and app profiles to be created before they are used.
    pub fn set_strict(&self, strict: bool) {
        self.strict.store(strict, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_strict(&self) -> bool {
        self.strict.load(Ordering::Relaxed)
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    pub(crate) fn views(&self) -> &Views {
        &self.views
    }

    pub(crate) fn instances(&self) -> Instances<'_> {
        Instances::new(self)
    }

    /// Returns whether the name of any table is accepted.
    pub(crate) fn any_table(&self, accepts: impl Fn(&str) -> bool) -> bool {
        self.by_name.load().keys().any(|name| accepts(name))
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
        if let Some(shared) = &self.shared {
            // Their tokens cannot be added later.
            let definition = Definition { keeps_tokens: true, ..definition };
            shared.create(name, definition.schema()?, &definition.splits)?;
            return self.get(name);
        }
        let _changing = self.changing.lock();
        if self.by_name.load().contains_key(name) {
            return Err(exists(name));
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
        if let Some(shared) = &self.shared {
            let old = self.get(name)?;
            let Successor { definition, emptied } = change(&old.definition)?;
            if !emptied.is_empty() {
                return Err(not_shared("Dropping a family and creating it again"));
            }
            shared.alter(old.id, definition.schema()?)?;
            return self.get(name);
        }
        let _changing = self.changing.lock();
        let old = self.get(name)?;
        let successor = change(&old.definition)?;
        self.replace(&old, successor)
    }

    /// Adds the hidden family of idempotency tokens to a table that lacks it. Durable
    /// on return.
    pub(crate) fn keep_tokens(&self, name: &str) -> Result<()> {
        if self.shared.is_some() {
            return Err(not_shared("Adding idempotency tokens to a table"));
        }
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
        let changing = self.changing.lock();
        let table = self.get(name)?;
        self.check_deletable(&table)?;
        if let Some(shared) = &self.shared {
            // It refreshes this registry.
            drop(changing);
            return shared.drop_table(table.id);
        }
        self.tables.delete(table.id)?;
        self.publish(|tables| tables.remove(name));
        Ok(())
    }

    /// Fails if the table or one of its views is protected.
    pub(crate) fn check_deletable(&self, table: &Table) -> Result<()> {
        let refused = |what: String| {
            Err(Error::Precondition(format!("Table {} cannot be deleted: {what}", table.name)))
        };
        if table.definition.deletion_protection {
            return refused("it has deletion protection".into());
        }
        let views = self.views.of(table);
        match views.iter().find(|view| view.deletion_protection) {
            Some(view) => {
                refused(format!("its authorized view {} has deletion protection", view.name))
            }
            None => Ok(()),
        }
    }

    /// Brings back the table of this name that was deleted last. Durable on return.
    pub fn undelete(&self, name: &str) -> Result<Arc<Table>> {
        if self.shared.is_some() {
            return Err(not_shared("Restoring deleted tables"));
        }
        TableName::parse(name)?;
        match self.tables.undelete(name) {
            Ok(_) => {}
            Err(stele_engine::Error::UnknownDeletedTable(_)) => {
                let what = format!("No deleted table that can be restored: {name}");
                return Err(Error::NotFound(what));
            }
            Err(stele_engine::Error::TableExists(_)) => return Err(exists(name)),
            Err(error) => return Err(error.into()),
        }
        self.adopt()?;
        self.get(name)
    }

    /// Creates a table from a backup. Durable on return.
    pub fn restore(&self, backup: &str, name: &str) -> Result<Arc<Table>> {
        if self.shared.is_some() {
            return Err(not_shared("Restoring backups"));
        }
        TableName::parse(name)?;
        match self.tables.restore(backup, name) {
            Ok(_) => {}
            Err(stele_engine::Error::TableExists(_)) => return Err(exists(name)),
            Err(error) => return Err(error.into()),
        }
        self.adopt()?;
        self.get(name)
    }

    /// Deletes all rows of a range in one commit. Durable on return.
    pub fn drop_rows(&self, table: &Table, rows: &RowRange) -> Result<()> {
        if self.shared.is_some() {
            return Err(not_shared("Deleting ranges of rows"));
        }
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

/// Returns the error of a change that servers cannot make together yet.
fn not_shared(what: &str) -> Error {
    Error::Unimplemented(format!("{what} is not supported in a cluster yet"))
}

fn exists(name: &str) -> Error {
    Error::Exists(format!("Table already exists: {name}"))
}
