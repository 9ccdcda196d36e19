//! The tables that the API serves: their definitions, and where the engine
//! keeps them.

mod definition;
mod gc;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use definition::{Definition, Family, Granularity};
use parking_lot::Mutex;
use stele_engine::{Store, TableId};

use crate::error::{Error, Result};

/// A table as it is at the moment; changes make a new one.
#[derive(Debug)]
pub struct Table {
    pub id: TableId,
    /// `projects/P/instances/I/tables/T`.
    pub name: String,
    pub definition: Definition,
}

/// All tables of a store whose names are resource names. Other tables of the
/// same store belong to other services.
pub struct Tables {
    store: Arc<Store>,
    by_name: ArcSwap<HashMap<String, Arc<Table>>>,
    /// Held while tables are made, changed or dropped.
    changing: Mutex<()>,
}

impl Tables {
    pub fn open(store: Arc<Store>) -> Result<Tables> {
        let mut by_name = HashMap::new();
        for (id, name) in store.tables() {
            if !name.starts_with("projects/") {
                continue;
            }
            let definition = Definition::from_schema(&name, &*store.schema(id)?)?;
            by_name.insert(name.clone(), Arc::new(Table { id, name, definition }));
        }
        Ok(Tables { store, by_name: ArcSwap::from_pointee(by_name), changing: Mutex::new(()) })
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The table of that resource name.
    pub fn get(&self, name: &str) -> Result<Arc<Table>> {
        if let Some(table) = self.by_name.load().get(name) {
            return Ok(table.clone());
        }
        crate::name::TableName::parse(name)?;
        Err(Error::NotFound(format!("Table not found: {name}")))
    }

    /// All tables, by name.
    pub fn all(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.by_name.load().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Makes a table. Durable when it returns.
    pub fn create(&self, name: &str, definition: Definition) -> Result<Arc<Table>> {
        crate::name::TableName::parse(name)?;
        let _changing = self.changing.lock();
        if self.by_name.load().contains_key(name) {
            return Err(Error::Exists(format!("Table already exists: {name}")));
        }
        let id = self.store.create_table(name, definition.schema()?)?;
        let table = Arc::new(Table { id, name: name.into(), definition });
        self.publish(|tables| tables.insert(name.into(), table.clone()));
        Ok(table)
    }

    /// Replaces a table's definition by what `change` makes of it.
    pub fn alter(
        &self,
        name: &str,
        change: impl FnOnce(Definition) -> Result<Definition>,
    ) -> Result<Arc<Table>> {
        let _changing = self.changing.lock();
        let old = self.get(name)?;
        let definition = change(old.definition.clone())?;
        self.store.alter_table(old.id, definition.schema()?)?;
        let table = Arc::new(Table { id: old.id, name: name.into(), definition });
        self.publish(|tables| tables.insert(name.into(), table.clone()));
        Ok(table)
    }

    /// Removes a table and its rows, unless `check` forbids it.
    pub fn drop(&self, name: &str, check: impl FnOnce(&Table) -> Result<()>) -> Result<()> {
        let _changing = self.changing.lock();
        let table = self.get(name)?;
        check(&table)?;
        self.store.drop_table(table.id)?;
        self.publish(|tables| tables.remove(name));
        Ok(())
    }

    fn publish<T>(&self, change: impl FnOnce(&mut HashMap<String, Arc<Table>>) -> T) {
        let mut tables = HashMap::clone(&self.by_name.load());
        change(&mut tables);
        self.by_name.store(Arc::new(tables));
    }
}
