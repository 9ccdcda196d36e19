//! The open tables of a store, by id.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{GroupMemory, Table};
use crate::cell::commit::TableId;
use crate::error::{Error, Result};
use crate::memory::MemoryFragment;
use crate::sync::{ArcSwap, Guard};
use crate::txn::Txn;

/// A map that readers load without a lock and writers replace as a whole.
pub struct TableMap {
    by_id: ArcSwap<BTreeMap<TableId, Arc<Table>>>,
}

impl TableMap {
    pub fn new(tables: impl IntoIterator<Item = Table>) -> TableMap {
        let by_id = tables.into_iter().map(|table| (table.id, Arc::new(table)));
        TableMap { by_id: ArcSwap::from_pointee(by_id.collect()) }
    }

    pub fn all(&self) -> Guard<Arc<BTreeMap<TableId, Arc<Table>>>> {
        self.by_id.load()
    }

    pub fn get(&self, id: TableId) -> Result<Arc<Table>> {
        let table = self.all().get(&id).cloned();
        table.ok_or_else(|| Error::UnknownTable(format!("number {}", id.0)))
    }

    pub fn named(&self, name: &str) -> Option<Arc<Table>> {
        self.all().values().find(|table| table.name == name).cloned()
    }

    pub fn insert(&self, table: &Arc<Table>) {
        self.by_id.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            next.insert(table.id, table.clone());
            next
        });
    }

    pub fn remove(&self, id: TableId) {
        self.by_id.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            next.remove(&id);
            next
        });
    }

    /// Returns the oldest commit over all tables that is only in memory,
    /// ignoring the memory fragments in `flushed`.
    pub fn txn_min(&self, flushed: &[Arc<MemoryFragment>]) -> Option<Txn> {
        let all = self.all();
        let versions: Vec<_> = all.values().map(|table| table.version()).collect();
        versions
            .iter()
            .flat_map(|version| &version.memory)
            .flat_map(GroupMemory::fragments)
            .filter(|fragment| !flushed.iter().any(|gone| Arc::ptr_eq(gone, fragment)))
            .filter_map(|fragment| fragment.txn_min())
            .min()
    }
}
