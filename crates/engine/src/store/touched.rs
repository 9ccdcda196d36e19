//! The tablets that a commit touches: only their chains delay or stop it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engine::Engine;
use crate::error::Error;
use crate::tablet::{Table, TableVersion, Tablet};
use crate::workers::choose::{self, Choice};
use crate::workers::claims::Work;
use crate::write::PreparedTable;

/// What a commit touches of one table.
pub(super) struct Touched {
    table: Arc<Table>,
    /// A row of each tablet; `None` means all tablets.
    rows: Option<Vec<Vec<u8>>>,
}

impl Touched {
    pub(super) fn of(prepared: &PreparedTable<'_>) -> Touched {
        let table = prepared.table.clone();
        let version = table.version();
        let has_all = !prepared.ranges.is_empty() || version.tablets.len() == 1;
        let rows = (!has_all).then(|| {
            let first_row = |row: &[u8]| version.tablets.of(row).rows.start.clone();
            let rows = prepared.rows.iter().map(|(_, row)| first_row(row));
            rows.collect::<BTreeSet<_>>().into_iter().collect()
        });
        drop(version);
        Touched { table, rows }
    }

    /// Returns the number of runs in the longest chain.
    pub(super) fn chain_longest(&self) -> usize {
        match &self.rows {
            _ if self.table.is_dropped() => 0,
            None => self.table.chain_longest(),
            Some(rows) => {
                let version = self.table.version();
                let tablets = rows.iter().map(|row| version.tablets.of(row));
                tablets.map(|tablet| tablet.chain_longest()).max().unwrap_or(0)
            }
        }
    }
}

impl Engine {
    /// Whether a chain that the changes of a table touch is so long that writers are
    /// delayed.
    pub(super) fn is_slowed(&self, prepared: &PreparedTable<'_>) -> bool {
        let chain_slow = self.tables.options.compact.chain_slow;
        // Most tables have short chains only.
        let may_be_slowed = prepared.table.chain_longest() >= chain_slow;
        may_be_slowed && Touched::of(prepared).chain_longest() >= chain_slow
    }

    /// Whether writers of a touched tablet must stop until compaction catches up.
    pub(super) fn is_stopped(&self, touched: &[Touched]) -> bool {
        touched.iter().any(|touched| self.any_stopped(touched, |_| Some(())).is_some())
    }

    /// Returns why the chains that stop a writer are not compacted, if that must be
    /// reported.
    pub(super) fn stopping_failure(&self, touched: &[Touched]) -> Option<Error> {
        let failure = |touched: &Touched| {
            let table = touched.table.id;
            self.any_stopped(touched, |tablet| self.failures.of_chains(table, tablet.id))
        };
        touched.iter().find_map(failure)
    }

    /// Returns why a chain of the table that stops its writers is not compacted, if that
    /// must be reported.
    pub(super) fn table_failure(&self, table: &Arc<Table>) -> Option<Error> {
        self.stopping_failure(&[Touched { table: table.clone(), rows: None }])
    }

    /// Returns the first result for a touched tablet whose writers must stop.
    fn any_stopped<T>(
        &self,
        touched: &Touched,
        result: impl Fn(&Tablet) -> Option<T>,
    ) -> Option<T> {
        let Touched { table, rows } = touched;
        if table.chain_longest() < self.tables.options.compact.chain_stop || table.is_dropped() {
            return None;
        }
        // One event may wake thousands of waiters, so they share the answer.
        let version = table.version();
        let find_out = || self.stopped_tablets(table, &version);
        let stopped = table.stopped(version.number, self.waiters.event(), find_out);
        let tablet = |row: &Vec<u8>| {
            let tablet = version.tablets.of(row);
            stopped.contains(&tablet.rows.start).then_some(tablet)
        };
        match rows {
            None => stopped.iter().filter_map(tablet).find_map(|tablet| result(tablet)),
            Some(rows) => rows.iter().filter_map(tablet).find_map(|tablet| result(tablet)),
        }
    }

    /// Returns the first rows of the tablets whose writers must stop. A chain that
    /// cannot be compacted because of damage stops no writer.
    fn stopped_tablets(&self, table: &Table, version: &TableVersion) -> BTreeSet<Vec<u8>> {
        let options = &self.tables.options.compact;
        let due = choose::all_due_of(version, options).into_iter().filter(|due| {
            let Choice { tablet, group, .. } = &due.choice;
            let work = Work::Compact { table: table.id, tablet: tablet.id, group: *group };
            due.length >= options.chain_stop && !self.failures.is_damaged(work)
        });
        due.map(|due| due.choice.tablet.start).collect()
    }
}
