//! The ways in which a filter is applied to cells: one by one, through narrowed
//! scans of a store, and row by row.

use std::path::Path;
use std::sync::Arc;

use stele_bigtable::filter::{Evaluator, Filter, Output};
use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, Random, SeededRandom, World};
use stele_engine::{
    BatchLimits, CellView, Columns, CommitBuilder, Durability, Flow, Options, ScanSpec, Store,
    TableId, Txn,
};

use super::cells::{Cell, Seen};
use super::comparison::Fixed;
use super::generate::{Case, FAMILIES, VERSIONS_MAX};

/// A case with its cells in a store: some in memory, some on disk.
pub struct Ways<'c> {
    case: &'c Case,
    store: Store,
    table: TableId,
}

/// The result of a narrowed scan, and how it was narrowed.
pub struct Scanned {
    pub seen: Vec<Seen>,
    pub passes_all: bool,
    pub blocks_all: bool,
    pub narrowed: bool,
    pub rows: bool,
    pub columns: bool,
    pub times: bool,
    pub versions: bool,
}

#[derive(Default)]
struct Collected(Vec<Seen>);

impl Output for Collected {
    fn cell(&mut self, cell: &CellView<'_>, label: Option<&str>) {
        self.0.push(Seen {
            row: cell.row.to_vec(),
            cell: Cell {
                family: String::from_utf8(cell.family.to_vec()).unwrap(),
                qualifier: cell.qualifier.to_vec(),
                timestamp: cell.timestamp,
                value: cell.value.to_vec(),
            },
            label: label.map(str::to_owned),
        });
    }
}

impl<'c> Ways<'c> {
    pub fn new(case: &'c Case) -> Ways<'c> {
        let world = World {
            clock: Arc::new(ManualClock::at(1_000_000)),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
        let families = FAMILIES.map(|name| match name {
            name if name == FAMILIES[2] => {
                Family::with_purge(name, Purge::MaxVersions(VERSIONS_MAX as u32))
            }
            name => Family::new(name),
        });
        let table = store.create_table("t", Schema::with_families(families).unwrap()).unwrap();
        for write in &case.writes {
            let mut commit = CommitBuilder::new();
            let Cell { family, qualifier, timestamp, value } = &write.cell;
            commit.table(table).row(&write.row);
            commit.set(family.as_bytes(), qualifier, *timestamp, value);
            store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
            if write.flush {
                store.flush(table).unwrap();
            }
        }
        Ways { case, store, table }
    }

    fn random(&self) -> Arc<dyn Random> {
        Arc::new(Fixed(self.case.draw))
    }

    /// Returns all cells of the case, in order.
    fn views(&self) -> impl Iterator<Item = CellView<'c>> + use<'c> {
        self.case.table.iter().flat_map(|(row, cells)| {
            cells.iter().map(move |cell| CellView {
                row,
                family: cell.family.as_bytes(),
                qualifier: &cell.qualifier,
                timestamp: cell.timestamp,
                txn: Txn::ZERO,
                marker: false,
                value: &cell.value,
            })
        })
    }

    /// Applies the whole filter to all cells.
    pub fn plain(&self, filter: &Filter) -> Vec<Seen> {
        let mut evaluator = filter.whole().evaluator(self.random());
        let mut output = Collected::default();
        for cell in self.views() {
            evaluator.cell(&cell, &mut output).unwrap();
        }
        evaluator.end_row(&mut output).unwrap();
        output.0
    }

    /// Omits the cells that the evaluator announced it would drop.
    pub fn skipping(&self, filter: &Filter) -> Vec<Seen> {
        let mut evaluator = filter.whole().evaluator(self.random());
        let mut output = Collected::default();
        let mut last: Option<(CellView<'_>, Flow)> = None;
        for cell in self.views() {
            let skipped = last.is_some_and(|(last, flow)| {
                let same_row = last.row == cell.row;
                let same_column =
                    same_row && (last.family, last.qualifier) == (cell.family, cell.qualifier);
                match flow {
                    Flow::Continue => false,
                    Flow::NextColumn => same_column,
                    Flow::NextRow => same_row,
                    Flow::Stop => true,
                }
            });
            if !skipped {
                last = Some((cell, evaluator.cell(&cell, &mut output).unwrap()));
            }
        }
        evaluator.end_row(&mut output).unwrap();
        output.0
    }

    /// Reads the selected rows by a scan that the filter narrows, in small
    /// batches.
    pub fn scan(&self, filter: &Filter, reverse: bool) -> Scanned {
        let rows = self.case.rows.clone();
        let mut spec = ScanSpec { rows: rows.clone(), reverse, ..ScanSpec::default() };
        let residual = filter.narrow(FAMILIES, &mut spec);
        let mut scanned = Scanned {
            seen: Vec::new(),
            passes_all: residual.passes_all(),
            blocks_all: residual.blocks_all(),
            rows: spec.rows != rows,
            columns: spec.columns != Columns::All,
            times: spec.times.is_some(),
            versions: spec.versions.is_some(),
            narrowed: false,
        };
        scanned.narrowed = scanned.rows || scanned.columns || scanned.times || scanned.versions;
        let mut evaluator = residual.evaluator(self.random());
        let mut output = Collected::default();
        let mut scan = self.store.scan(self.table, spec).unwrap();
        let limits = BatchLimits { cells: 3, bytes: 1 << 10, work: 7, ..BatchLimits::default() };
        loop {
            let batch =
                scan.next_batch(limits, &mut |cell| take(&mut evaluator, cell, &mut output));
            if batch.unwrap().done {
                break;
            }
        }
        evaluator.end_row(&mut output).unwrap();
        scanned.seen = output.0;
        scanned
    }

    /// Reads each row of the table separately.
    pub fn row_by_row(&self, filter: &Filter) -> Vec<Seen> {
        let mut output = Collected::default();
        for row in self.case.table.keys() {
            let mut spec = ScanSpec::row(row);
            let mut evaluator = filter.narrow(FAMILIES, &mut spec).evaluator(self.random());
            let read = self.store.read(self.table, spec, |cell| {
                take(&mut evaluator, cell, &mut output);
            });
            read.unwrap();
            evaluator.end_row(&mut output).unwrap();
        }
        output.0
    }
}

fn take(evaluator: &mut Evaluator, cell: &CellView<'_>, output: &mut Collected) {
    evaluator.cell(cell, output).unwrap();
}
