//! Changes of a table's tablets. They are made one at a time: each is written to
//! the config first and then shown to readers, in the same order.

use std::sync::Arc;

use super::chain::{Tablet, TabletMap};
use super::table::{Table, TableVersion};
use crate::cell::rows::RowRange;
use crate::sync::MutexGuard;

/// The exclusive right to change the tablets of a table. Readers and writers are not
/// affected.
pub struct Publishing<'t> {
    table: &'t Table,
    _lock: MutexGuard<'t, ()>,
}

impl Table {
    /// Waits until no other thread changes the tablets.
    pub fn publish(&self) -> Publishing<'_> {
        Publishing { table: self, _lock: self.lock_publishing() }
    }
}

impl Publishing<'_> {
    /// Returns the tablets, which no other thread changes meanwhile.
    pub fn tablets(&self) -> Arc<TabletMap> {
        self.table.version().tablets.clone()
    }

    /// Replaces tablets with others that have the same rows, and makes another
    /// change in the same step.
    pub fn replace(&self, changed: Vec<Arc<Tablet>>, also: impl Fn(&mut TableVersion)) {
        let tablets = self.tablets();
        let mut next = TabletMap::clone(&tablets);
        let gone: Vec<_> =
            changed.iter().map(|tablet| tablets.of(&tablet.rows.start).clone()).collect();
        next.replace(changed.iter().cloned());
        self.show(next, &gone, &changed, also);
    }

    /// Replaces neighbouring tablets, which have these rows together, with others.
    pub fn splice(&self, rows: &RowRange, added: Vec<Arc<Tablet>>) {
        let tablets = self.tablets();
        let mut next = TabletMap::clone(&tablets);
        let gone: Vec<_> = tablets.overlapping(rows).cloned().collect();
        next.splice(rows, added.clone());
        self.show(next, &gone, &added, |_| ());
    }

    fn show(
        &self,
        next: TabletMap,
        gone: &[Arc<Tablet>],
        added: &[Arc<Tablet>],
        also: impl Fn(&mut TableVersion),
    ) {
        let next = Arc::new(next);
        added.iter().flat_map(|tablet| tablet.links()).for_each(|link| link.add_reference());
        self.table.change(|version| {
            version.tablets = next.clone();
            also(version);
        });
        // Readers of earlier versions keep using the files, which are removed when
        // the last of them is done.
        gone.iter().flat_map(|tablet| tablet.links()).for_each(|link| link.remove_reference());
    }
}
