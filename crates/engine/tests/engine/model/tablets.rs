//! Tablets that are split, joined, unloaded and loaded between the other steps. What
//! touches an unloaded row fails, and nothing else does.

use stele_engine::*;

use super::history::Changes;
use super::run::Run;

/// The tablets of one table that are not loaded, and those that were loaded again.
#[derive(Default)]
pub struct Loads {
    /// The rows of the unloaded tablets.
    unloaded: Vec<RowRange>,
    /// Rows that were loaded since the store was opened, each with a txn: whatever was read
    /// before it conflicts.
    loaded: Vec<(RowRange, Txn)>,
}

impl Loads {
    /// Forgets the conflicts, because the store was opened again.
    pub fn reopened(&mut self) {
        self.loaded.clear();
    }

    /// Returns whether a row or range of the changes is in an unloaded tablet.
    pub fn refuse(&self, changes: &Changes) -> bool {
        let touches = |rows: &RowRange| {
            changes.rows.keys().any(|row| rows.contains(row))
                || changes.ranges.iter().any(|range| range.overlaps(rows))
        };
        self.unloaded.iter().any(touches)
    }

    pub fn any_unloaded(&self) -> bool {
        !self.unloaded.is_empty()
    }

    /// Returns the newest load of a row's tablet, at least.
    pub fn newest_of(&self, row: &[u8]) -> Txn {
        let loads = self.loaded.iter().filter(|(rows, _)| rows.contains(row));
        loads.map(|(_, txn)| *txn).max().unwrap_or(Txn::ZERO)
    }

    /// Returns the newest load.
    pub fn newest(&self) -> Txn {
        self.loaded.iter().map(|(_, txn)| *txn).max().unwrap_or(Txn::ZERO)
    }
}

impl Run {
    pub(super) fn split_or_join(&mut self) {
        const TABLETS_MAX: usize = 9;
        let table = self.chance.pick(&self.ids());
        let tablets = self.store().tablets(table).unwrap();
        let row = self.chance.row();
        let inner: Vec<Vec<u8>> =
            tablets.iter().skip(1).map(|tablet| tablet.rows.start.clone()).collect();
        if inner.is_empty() || (tablets.len() < TABLETS_MAX && self.chance.percent(55)) {
            self.record_step(format!("split {} at {}", table.0, row.escape_ascii()));
            if !row.is_empty() {
                let is_new = !inner.contains(&row);
                let within = tablets.iter().find(|tablet| tablet.rows.contains(&row));
                match self.store().split(table, &row) {
                    Err(Error::TabletNotLoaded(_)) => assert!(is_new && !is_active(within)),
                    split => {
                        assert_eq!(split.unwrap(), is_new);
                        self.tally.splits += u64::from(is_new);
                    }
                }
            }
        } else {
            let row = self.chance.pick(&inner);
            self.record_step(format!("join {} at {}", table.0, row.escape_ascii()));
            let upper = tablets.iter().position(|tablet| tablet.rows.start == row).unwrap();
            let active = [upper - 1, upper].iter().all(|&at| is_active(Some(&tablets[at])));
            match self.store().join(table, &row) {
                Err(Error::TabletNotLoaded(_)) => assert!(!active),
                joined => {
                    joined.unwrap();
                    self.tally.joins += 1;
                }
            }
        }
    }

    /// Loads or unloads some tablets of a table.
    pub(super) fn load_or_unload(&mut self) {
        let number = self.chance.below(self.tables.len());
        let id = self.tables[number].id;
        let ranges: Vec<RowRange> = match self.chance.below(6) {
            0 => vec![RowRange::all()],
            _ => (0..1 + self.chance.below(2)).map(|_| RowRange::row(&self.chance.row())).collect(),
        };
        let loads = !self.tables[number].loads.unloaded.is_empty() && self.chance.percent(65);
        let chosen = |tablet: &TabletInfo| {
            (tablet.state == TabletState::Unloaded) == loads
                && ranges.iter().any(|range| range.overlaps(&tablet.rows))
        };
        let tablets: Vec<TabletInfo> =
            self.store().tablets(id).unwrap().into_iter().filter(chosen).collect();
        self.record_step(format!(
            "{} of {}: {ranges:?}",
            if loads { "load" } else { "unload" },
            id.0
        ));
        let latest = self.store().progress().1;
        let state = &mut self.tables[number].loads;
        if loads {
            state.unloaded.retain(|rows| tablets.iter().all(|tablet| tablet.rows != *rows));
            state.loaded.extend(tablets.iter().map(|tablet| (tablet.rows.clone(), latest)));
            self.tally.loads += tablets.len() as u64;
            assert_eq!(self.store().load(id, &ranges).unwrap(), tablets.len());
        } else {
            state.unloaded.extend(tablets.iter().map(|tablet| tablet.rows.clone()));
            self.tally.unloads += tablets.len() as u64;
            assert_eq!(self.store().unload(id, &ranges).unwrap(), tablets.len());
        }
        self.check_loads();
    }

    /// Checks that the store knows the same tablets as unloaded.
    pub(super) fn check_loads(&self) {
        for table in &self.tables {
            let tablets = self.store().tablets(table.id).unwrap();
            let mut expected: Vec<&RowRange> = table.loads.unloaded.iter().collect();
            expected.sort_by(|a, b| a.start.cmp(&b.start));
            let unloaded = tablets.iter().filter(|tablet| tablet.state != TabletState::Active);
            assert!(unloaded.map(|tablet| &tablet.rows).eq(expected));
        }
    }

    /// Loads everything, to compare all rows.
    pub(super) fn load_all(&mut self) {
        for table in &mut self.tables {
            table.loads.unloaded.clear();
        }
        for id in self.ids() {
            self.store().load(id, &[RowRange::all()]).unwrap();
        }
    }
}

fn is_active(tablet: Option<&TabletInfo>) -> bool {
    tablet.is_some_and(|tablet| tablet.state == TabletState::Active)
}
