//! Prepares commits: validates, normalizes and encodes them as cell keys before
//! any lock is taken. Only the txn is missing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::conflict::RowSlot;
use crate::cell::commit::{Commit, CommitVisitor, Mutation, SHARED_VALUE_BYTES_MIN, TableId};
use crate::cell::fold::{FoldId, Folds};
use crate::cell::key;
use crate::cell::normal::{self, NormalCell, NormalRow};
use crate::cell::rows::RowRange;
use crate::error::{Error, Printable, Result};
use crate::memory::{MemoryFragment, MemoryValue};
use crate::options::Limits;
use crate::schema::{self, Schema};
use crate::tablet::{Table, TabletMap};
use crate::txn::Txn;

/// Minimum percentage of a commit that its long values must make up to be
/// shared, because a shared value keeps the whole commit in memory. Other bytes
/// that stay in memory are at most a third of them.
const SHARED_PERCENT_MIN: usize = 75;
/// Approximate memory overhead of an entry beyond its key and value.
const ENTRY_OVERHEAD_BYTES: usize = 48;
/// Overhead of a key beyond row, family and qualifier, without escapes.
const KEY_OVERHEAD_BYTES: usize = 32;

/// All changes of a commit, by table.
pub struct Prepared<'a> {
    pub tables: Vec<PreparedTable<'a>>,
    commit_bytes: usize,
}

pub struct PreparedTable<'a> {
    pub table: Arc<Table>,
    /// The table's fence and schema when the changes were checked.
    pub fence: u64,
    pub schema: Arc<Schema>,
    pub rows: Vec<(RowSlot, &'a [u8])>,
    pub ranges: Vec<RowRange>,
    /// One per group of the schema.
    groups: Vec<GroupCells<'a>>,
}

/// The entries of one group, in key order.
#[derive(Default)]
struct GroupCells<'a> {
    keys: Vec<u8>,
    entries: Vec<(Range<usize>, Cow<'a, [u8]>)>,
}

/// How to treat unknown tables and families.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Reject the commit.
    Reject,
    /// Skip them, because they were dropped after the commit was logged. Tables
    /// with ids above `last_table` never existed.
    Dropped { last_table: TableId },
}

impl<'a> Prepared<'a> {
    pub fn new(
        commit: &'a Commit,
        tables: &BTreeMap<TableId, Arc<Table>>,
        limits: &Limits,
        folds: &Folds,
        unknown: Unknown,
    ) -> Result<Prepared<'a>> {
        check_size("a commit", commit.bytes().len(), limits.commit_bytes_max)?;
        let mut preparer = Preparer {
            known: tables,
            limits,
            folds,
            unknown,
            prepared: Prepared { tables: Vec::new(), commit_bytes: commit.bytes().len() },
            skipping: false,
            restricted: None,
            row: &[],
            mutations: Vec::new(),
        };
        commit.walk(&mut preparer)?;
        Ok(preparer.prepared)
    }

    /// Fails if the changes to `table` were checked against another schema.
    pub fn check_schema(&self, table: TableId, schema: &Arc<Schema>) -> Result<()> {
        let other = |prepared: &&PreparedTable<'_>| {
            prepared.table.id == table && !Arc::ptr_eq(&prepared.schema, schema)
        };
        match self.tables.iter().find(other) {
            Some(prepared) => Err(Error::SchemaChanged { table: prepared.table.name.clone() }),
            None => Ok(()),
        }
    }

    /// Returns the approximate size of the commit in memory fragments.
    pub fn memory_bytes(&self) -> usize {
        let groups = self.tables.iter().flat_map(|table| &table.groups);
        groups.map(|cells| cells.memory_bytes(self.commit_bytes)).sum()
    }
}

impl PreparedTable<'_> {
    /// Returns the ranges of rows that are deleted in a group: none if its families
    /// are hidden.
    pub fn ranges_of(&self, group: usize) -> &[RowRange] {
        if group < self.schema.visible_groups() { &self.ranges } else { &[] }
    }

    /// Removes the entries of a group in rows that `keep` does not accept.
    pub fn retain_rows(&mut self, group: usize, keep: impl Fn(&[u8]) -> bool) {
        let cells = &mut self.groups[group];
        let keys = &cells.keys;
        cells.entries.retain(|(at, _)| {
            keep(&key::row_of(&keys[at.clone()]).expect("the key was just encoded"))
        });
    }

    /// Inserts the entries of a group into its memory fragment.
    pub fn insert(&mut self, group: usize, txn: Txn, commit: &Commit, memory: &MemoryFragment) {
        let cells = &mut self.groups[group];
        if cells.entries.is_empty() {
            return;
        }
        for (at, _) in &cells.entries {
            key::set_txn(&mut cells.keys[at.clone()], txn);
        }
        let pinned = cells.pinned_bytes(commit.bytes().len());
        if let Some(bytes) = pinned {
            memory.pin(bytes);
        }
        memory.insert_all(cells.entries.iter().map(|(at, value)| {
            let value = match value {
                Cow::Borrowed(value) if pinned.is_some() && is_long(value) => {
                    MemoryValue::Shared(commit.bytes().slice_ref(value))
                }
                value => MemoryValue::Borrowed(value),
            };
            (&cells.keys[at.clone()], value)
        }));
    }
}

impl<'a> GroupCells<'a> {
    fn memory_bytes(&self, commit_bytes: usize) -> usize {
        let values: usize = self.entries.iter().map(|(_, value)| value.len()).sum();
        let pinned = self.pinned_bytes(commit_bytes).unwrap_or(0);
        self.keys.len() + values + pinned + self.entries.len() * ENTRY_OVERHEAD_BYTES
    }

    /// Returns the size of the commit without its long values, if those are
    /// shared with it; `None` if they are copied.
    fn pinned_bytes(&self, commit_bytes: usize) -> Option<usize> {
        if commit_bytes < SHARED_VALUE_BYTES_MIN {
            return None;
        }
        let borrowed = self.entries.iter().filter_map(|(_, value)| match value {
            Cow::Borrowed(value) => Some(*value),
            Cow::Owned(_) => None,
        });
        let long: usize = borrowed.filter(|value| is_long(value)).map(<[u8]>::len).sum();
        let shares = long > 0 && long >= commit_bytes / 100 * SHARED_PERCENT_MIN;
        shares.then(|| commit_bytes.saturating_sub(long))
    }

    fn push(&mut self, value: Cow<'a, [u8]>, push_key: impl FnOnce(&mut Vec<u8>)) {
        let start = self.keys.len();
        push_key(&mut self.keys);
        self.entries.push((start..self.keys.len(), value));
    }
}

fn is_long(value: &[u8]) -> bool {
    value.len() >= SHARED_VALUE_BYTES_MIN
}

struct Preparer<'a, 't> {
    known: &'t BTreeMap<TableId, Arc<Table>>,
    limits: &'t Limits,
    folds: &'t Folds,
    unknown: Unknown,
    prepared: Prepared<'a>,
    /// Whether the table was dropped after the commit was logged.
    skipping: bool,
    /// The tablets of the table, if some rows of it cannot be written.
    restricted: Option<Arc<TabletMap>>,
    row: &'a [u8],
    mutations: Vec<Mutation<'a>>,
}

impl<'a> Preparer<'a, '_> {
    fn current(&mut self) -> &mut PreparedTable<'a> {
        self.prepared.tables.last_mut().expect("a row comes after its table")
    }

    /// Returns the group of a family; `None` if its changes must be skipped.
    fn group_of(&self, family: &[u8]) -> Result<Option<usize>> {
        let current = self.prepared.tables.last().expect("a row comes after its table");
        match current.schema.find(family) {
            Some(found) => {
                // A name that only the wildcard group accepts has not been
                // checked before.
                if found.family.is_none() {
                    schema::check_family_name(family).map_err(Error::InvalidMutation)?;
                }
                Ok(Some(found.group))
            }
            None if self.unknown != Unknown::Reject => Ok(None),
            None => Err(Error::UnknownColumnFamily {
                table: current.table.name.clone(),
                family: Printable::from(family),
            }),
        }
    }

    fn check(&self, mutation: &Mutation<'a>) -> Result<()> {
        let (qualifier, value): (&[u8], &[u8]) = match mutation {
            Mutation::Set { qualifier, value, .. } | Mutation::Mark { qualifier, value, .. } => {
                (qualifier, value)
            }
            Mutation::Merge { qualifier, operand, fold, .. } => {
                self.check_operand(*fold, operand)?;
                (qualifier, operand)
            }
            Mutation::DeleteCells { qualifier, .. } => (qualifier, &[]),
            Mutation::DeleteFamily { .. } | Mutation::DeleteRow => return Ok(()),
        };
        check_size("a qualifier", qualifier.len(), self.limits.qualifier_bytes_max)?;
        check_size("a value", value.len(), self.limits.value_bytes_max)
    }

    fn check_operand(&self, id: FoldId, operand: &[u8]) -> Result<()> {
        let Some(fold) = self.folds.get(id) else {
            // A logged commit was checked by a version that knew the fold.
            if self.unknown != Unknown::Reject {
                return Ok(());
            }
            return Err(Error::InvalidMutation(format!("unknown fold id {}", id.0)));
        };
        fold.check(operand).map_err(Error::InvalidMutation)
    }

    fn push_cell(&mut self, cell: NormalCell<'a>) -> Result<()> {
        let Some(group) = self.group_of(cell.family)? else { return Ok(()) };
        let row = self.row;
        self.current().groups[group].push(cell.value, |keys| {
            keys.reserve(row.len() + cell.family.len() + cell.qualifier.len() + KEY_OVERHEAD_BYTES);
            key::push_column(keys, row, cell.family, cell.qualifier);
            key::push_cell_tail(keys, cell.timestamp, Txn::ZERO, cell.kind);
        });
        Ok(())
    }
}

impl<'a> CommitVisitor<'a> for Preparer<'a, '_> {
    fn table(&mut self, table: TableId) -> Result<()> {
        self.skipping = false;
        self.restricted = None;
        let Some(table) = self.known.get(&table) else {
            match self.unknown {
                Unknown::Dropped { last_table } if table <= last_table => self.skipping = true,
                _ => return Err(Error::UnknownTable(format!("number {}", table.0))),
            }
            return Ok(());
        };
        // Read before the rest, so that a change in between is noticed.
        let fence = table.fence();
        if table.is_dropping() {
            return Err(Error::UnknownTable(format!("number {}", table.id.0)));
        }
        let version = table.version();
        let schema = version.schema.clone();
        // What was logged was accepted once; replay skips what unloaded tablets have.
        let restricted = !version.all_active && self.unknown == Unknown::Reject;
        self.restricted = restricted.then(|| version.tablets.clone());
        let groups = schema.groups().iter().map(|_| GroupCells::default()).collect();
        self.prepared.tables.push(PreparedTable {
            table: table.clone(),
            fence,
            schema,
            rows: Vec::new(),
            ranges: Vec::new(),
            groups,
        });
        Ok(())
    }

    fn delete_range(&mut self, range: RowRange) -> Result<()> {
        if !self.skipping {
            let end = range.end.as_ref().map_or(0, Vec::len);
            check_size("a row key", range.start.len().max(end), self.limits.row_bytes_max + 1)?;
            let table = self.current().table.clone();
            for tablet in self.restricted.iter().flat_map(|tablets| tablets.overlapping(&range)) {
                tablet.check_write(&table, (&*tablet.rows.start).max(&*range.start))?;
            }
            self.current().ranges.push(range);
        }
        Ok(())
    }

    fn row(&mut self, row: &'a [u8]) -> Result<()> {
        check_size("a row key", row.len(), self.limits.row_bytes_max)?;
        if let Some(tablets) = &self.restricted {
            let table = self.prepared.tables.last().expect("a row comes after its table");
            tablets.of(row).check_write(&table.table, row)?;
        }
        self.row = row;
        self.mutations.clear();
        Ok(())
    }

    fn mutation(&mut self, mutation: Mutation<'a>) -> Result<()> {
        if !self.skipping {
            self.check(&mutation)?;
            self.mutations.push(mutation);
        }
        Ok(())
    }

    fn row_end(&mut self) -> Result<()> {
        if self.skipping {
            return Ok(());
        }
        let row = self.row;
        // A delete of the row does not cover the hidden families.
        let spared = self.take_spared();
        let normal = normal::normalize(&self.mutations, self.folds)?;
        let current = self.current();
        current.rows.push((RowSlot::of(current.table.id, row), row));
        if normal.row_deleted {
            let visible = current.schema.visible_groups();
            for group in &mut current.groups[..visible] {
                group
                    .push(Cow::Borrowed(&[]), |keys| normal::push_tombstone(keys, row, None, None));
            }
        }
        self.push_row(normal)?;
        if !spared.is_empty() {
            self.push_row(normal::normalize(&spared, self.folds)?)?;
        }
        Ok(())
    }
}

impl<'a> Preparer<'a, '_> {
    /// Removes the mutations of hidden families from a row that is deleted, and
    /// returns them.
    fn take_spared(&mut self) -> Vec<Mutation<'a>> {
        let schema = &self.prepared.tables.last().expect("a row comes after its table").schema;
        let visible = schema.visible_groups();
        if visible == schema.groups().len() || !self.mutations.contains(&Mutation::DeleteRow) {
            return Vec::new();
        }
        let is_hidden = |mutation: &mut Mutation<'a>| {
            let at = mutation.family().and_then(|family| schema.find(family));
            at.is_some_and(|at| at.group >= visible)
        };
        self.mutations.extract_if(.., is_hidden).collect()
    }

    /// Adds the tombstones of families and columns and the cells of a row.
    fn push_row(&mut self, normal: NormalRow<'a>) -> Result<()> {
        let row = self.row;
        for family in normal.families_deleted {
            if let Some(group) = self.group_of(family)? {
                self.current().groups[group].push(Cow::Borrowed(&[]), |keys| {
                    normal::push_tombstone(keys, row, Some(family), None);
                });
            }
        }
        for column in normal.columns_deleted {
            if let Some(group) = self.group_of(column.family)? {
                let mut times = Vec::new();
                normal::encode_times(&column.times, &mut times);
                self.current().groups[group].push(Cow::Owned(times), |keys| {
                    normal::push_tombstone(keys, row, Some(column.family), Some(column.qualifier));
                });
            }
        }
        normal.cells.into_iter().try_for_each(|cell| self.push_cell(cell))
    }
}

fn check_size(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::TooLarge { what, size, limit });
    }
    Ok(())
}
