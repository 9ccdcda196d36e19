//! Changes of the groups of a table: tablets with new chains of the same files, and memory
//! whose cells are in their new groups.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use super::chain::{Tablet, TabletMap};
use super::link::Link;
use super::publish::Publishing;
use super::table::{GroupMemory, TableVersion};
use crate::budget::MemoryBudget;
use crate::cell::key::{KeyParts, Level};
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::config::{FileContents, FileName, Reference, TableConfig};
use crate::error::Result;
use crate::memory::MemoryValue;
use crate::merge::Merge;
use crate::schema::Schema;
use crate::txn::Txn;

/// Returns what decides to which groups each file belongs. The files are opened.
pub fn contents_of(tablets: &TabletMap) -> Result<BTreeMap<FileName, FileContents>> {
    let mut contents = BTreeMap::new();
    for link in tablets.iter().flat_map(|tablet| tablet.links()) {
        if let Entry::Vacant(entry) = contents.entry(link.file.name) {
            entry.insert(link.contents()?);
        }
    }
    Ok(contents)
}

/// Returns the tablets as the config now describes them, with the files that the present
/// ones have open.
pub fn regrouped_tablets(present: &TabletMap, config: &TableConfig) -> Result<Vec<Arc<Tablet>>> {
    let regroup = |config: &Arc<_>, tablet: &Arc<Tablet>| {
        let open: BTreeMap<FileName, &Arc<Link>> =
            tablet.links().map(|link| (link.file.name, link)).collect();
        let link = |file: &Reference, rows: RowRange| {
            let known = open.get(&file.name).expect("a change of groups names no new file");
            Ok(Arc::new(Link::new(file.clone(), rows, known.linked().clone())))
        };
        Tablet::new(config, tablet.loaded_at, tablet.since, link).map(Arc::new)
    };
    config
        .tablets
        .iter()
        .zip(present.iter())
        .map(|(config, tablet)| regroup(config, tablet))
        .collect()
}

/// Returns the memory of a version divided into the groups of another schema.
pub fn regrouped_memory(
    version: &TableVersion,
    schema: &Schema,
    flushed: Txn,
    budget: &Arc<MemoryBudget>,
    now: Duration,
) -> Result<Vec<GroupMemory>> {
    let memory: Vec<GroupMemory> =
        schema.groups().iter().map(|_| GroupMemory::new(budget, flushed)).collect();
    let visible = &memory[..schema.visible_groups()];
    let fragments = || version.memory.iter().flat_map(GroupMemory::fragments);
    let mut deleted = RangeTombstones::default();
    fragments().for_each(|fragment| deleted.merge(&fragment.range_tombstones()));
    for tombstone in deleted.iter() {
        for &txn in &tombstone.txns {
            visible
                .iter()
                .for_each(|group| group.active.insert_range_tombstone(&tombstone.range, txn));
        }
    }
    let mut merge = Merge::new(fragments().map(|fragment| fragment.cursor()).collect());
    let mut last: Vec<u8> = Vec::new();
    merge.seek(&[])?;
    while merge.valid() {
        let (key, value) = (merge.key(), merge.value());
        // Each visible group has the delete of a row.
        if key != last {
            let parts = KeyParts::parse(key).expect("memory has only cell keys");
            let groups = match parts.level {
                Level::RowTombstone => visible,
                _ => match schema.group_of(parts.family(key)) {
                    Some(group) => &memory[group..=group],
                    None => &[],
                },
            };
            for group in groups {
                group.active.insert_all(std::iter::once((key, MemoryValue::Borrowed(value))));
            }
            last.clear();
            last.extend_from_slice(key);
        }
        merge.advance()?;
    }
    for group in memory.iter().filter(|group| !group.active.is_empty()) {
        group.active_since.get_or_init(|| now);
    }
    Ok(memory)
}

impl Publishing<'_> {
    /// Replaces the schema, the tablets and the memory. The caller excludes writers, and
    /// calls `release` with the tablets of before when writers are no longer excluded.
    pub fn show_groups(
        &self,
        schema: &Arc<Schema>,
        tablets: &[Arc<Tablet>],
        memory: &[GroupMemory],
    ) {
        tablets.iter().flat_map(|tablet| tablet.links()).for_each(|link| link.add_reference());
        let tablets = Arc::new(TabletMap::new(tablets.to_vec()));
        self.table().set_schema(schema, |version| {
            version.tablets = tablets.clone();
            version.memory = memory.to_vec();
        });
    }

    /// Removes the references of tablets that were replaced.
    pub fn release(&self, tablets: &TabletMap) {
        tablets.iter().flat_map(|tablet| tablet.links()).for_each(|link| link.remove_reference());
    }
}
