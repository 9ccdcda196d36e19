//! Changes of a table's tablets: each is written to the config first and then shown to
//! readers. Whoever changes tablets takes a turn for their rows.

use std::ops::Range;
use std::sync::Arc;

use super::chain::{Chain, Tablet, TabletKey, TabletMap};
use super::link::Link;
use super::run::Run;
use super::table::{GroupMemory, Table, TableVersion};
use super::turns::Turn;
use crate::budget::MemoryBudget;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// The right to change the tablets of some rows. Readers and writers are not affected.
pub struct Publishing<'t> {
    table: &'t Table,
    _turn: Turn<'t>,
    shared: bool,
}

/// The replacement of consecutive runs of a chain.
pub struct RunSplice {
    pub tablet: TabletKey,
    pub group: usize,
    /// The runs that go, which nobody else replaces meanwhile; `None` to append.
    pub replaced: Option<Range<usize>>,
    pub runs: Vec<Run>,
    /// Commits up to this txn are in files.
    pub flushed: Option<Txn>,
}

impl Table {
    /// Waits until no other thread changes the tablets.
    pub fn publish(&self) -> Publishing<'_> {
        self.publish_bounds(&RowRange::all())
    }

    /// Waits until no other thread changes the tablets of these rows.
    pub fn publish_bounds(&self, rows: &RowRange) -> Publishing<'_> {
        Publishing { table: self, _turn: self.turns().take(rows.clone(), false), shared: false }
    }

    /// Waits until no other thread changes the bounds of the tablets of these rows. Other
    /// threads may change their files.
    pub fn publish_files(&self, rows: &RowRange) -> Publishing<'_> {
        Publishing { table: self, _turn: self.turns().take(rows.clone(), true), shared: true }
    }
}

impl Publishing<'_> {
    pub(super) fn table(&self) -> &Table {
        self.table
    }

    /// Returns the tablets. Nobody else changes those of the rows of this turn, except
    /// perhaps their files.
    pub fn tablets(&self) -> Arc<TabletMap> {
        self.table.version().tablets.clone()
    }

    /// Returns an error if the table was dropped before.
    pub fn check_exists(&self) -> Result<()> {
        if self.table.is_dropped() {
            return Err(Error::UnknownTable(format!("number {}", self.table.id.0)));
        }
        Ok(())
    }

    /// Replaces runs of tablets, and makes another change in the same step.
    pub fn splice_runs(&self, splices: &[RunSplice], also: impl Fn(&mut TableVersion)) {
        let tablets = self.tablets();
        let gone = splices.iter().filter_map(|splice| {
            let tablet = splice.tablet.find(&tablets).expect("its bounds do not change");
            Some(tablet.chains[splice.group].runs[splice.replaced.clone()?].to_vec())
        });
        let gone: Vec<Run> = gone.flatten().collect();
        let added = splices.iter().flat_map(|splice| &splice.runs);
        self.show(links(added), links(&gone), |version| {
            let mut next = TabletMap::clone(&version.tablets);
            next.replace(spliced(&version.tablets, splices));
            version.tablets = Arc::new(next);
            also(version);
        });
    }

    /// Replaces tablets with others that have the same rows, and makes another
    /// change in the same step. The turn must not be shared.
    pub fn replace(&self, changed: Vec<Arc<Tablet>>, also: impl Fn(&mut TableVersion)) {
        assert!(!self.shared, "others may change the files of the tablets");
        let tablets = self.tablets();
        let gone: Vec<_> =
            changed.iter().map(|tablet| tablets.of(&tablet.rows.start).clone()).collect();
        self.show(files(&changed), files(&gone), |version| {
            let mut next = TabletMap::clone(&version.tablets);
            next.replace(changed.iter().cloned());
            version.tablets = Arc::new(next);
            also(version);
        });
    }

    /// Replaces neighbouring tablets, which have these rows together, with others. The
    /// turn must not be shared.
    pub fn splice(&self, rows: &RowRange, added: Vec<Arc<Tablet>>) {
        assert!(!self.shared, "others may change the files of the tablets");
        let gone: Vec<_> = self.tablets().overlapping(rows).cloned().collect();
        self.show(files(&added), files(&gone), |version| {
            let mut next = TabletMap::clone(&version.tablets);
            next.splice(rows, added.clone());
            version.tablets = Arc::new(next);
        });
    }

    /// Replaces the schema. Groups that it adds have no cells yet. The caller excludes
    /// writers.
    pub fn set_schema(&self, schema: &Arc<Schema>, budget: &Arc<MemoryBudget>) {
        let (tablets, groups) = (self.tablets(), schema.groups().len());
        if tablets.first().chains.len() == groups {
            return self.table.set_schema(schema, |_| ());
        }
        let wider = tablets.iter().map(|tablet| {
            let mut tablet = Tablet::clone(tablet);
            tablet.chains.resize_with(groups, Chain::default);
            Arc::new(tablet)
        });
        // The links are those of before, so the references to their files are, too.
        let wider = Arc::new(TabletMap::new(wider.collect()));
        self.table.set_schema(schema, |version| {
            version.tablets = wider.clone();
            version.memory.resize_with(groups, || GroupMemory::new(budget, Txn::ZERO));
        });
    }

    fn show<'l>(
        &self,
        added: impl Iterator<Item = &'l Arc<Link>>,
        gone: impl Iterator<Item = &'l Arc<Link>>,
        change: impl Fn(&mut TableVersion),
    ) {
        added.for_each(|link| link.add_reference());
        self.table.change(change);
        // Readers of earlier versions keep using the files, which are removed when
        // the last of them is done.
        gone.for_each(|link| link.remove_reference());
    }
}

/// Returns the tablets that the splices change, changed.
fn spliced(tablets: &TabletMap, splices: &[RunSplice]) -> Vec<Arc<Tablet>> {
    let spliced = |splice: &RunSplice| {
        let current = splice.tablet.find(tablets).expect("its bounds do not change");
        let mut tablet = Tablet::clone(current);
        let chain = &mut tablet.chains[splice.group];
        let end = chain.runs.len();
        let replaced = splice.replaced.clone().unwrap_or(end..end);
        chain.runs.splice(replaced, splice.runs.iter().cloned());
        chain.flushed = chain.flushed.max(splice.flushed.unwrap_or(Txn::ZERO));
        Arc::new(tablet)
    };
    splices.iter().map(spliced).collect()
}

fn links<'r>(runs: impl IntoIterator<Item = &'r Run>) -> impl Iterator<Item = &'r Arc<Link>> {
    runs.into_iter().flat_map(Run::links)
}

fn files(tablets: &[Arc<Tablet>]) -> impl Iterator<Item = &Arc<Link>> {
    tablets.iter().flat_map(|tablet| tablet.links())
}
