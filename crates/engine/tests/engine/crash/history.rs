//! The commits applied to a store, and the expected contents after any prefix of them.

use std::collections::BTreeMap;

use stele_engine::*;

use crate::support::die::Die;

/// The families of every table, each in its own group.
pub const FAMILIES: [&[u8]; 2] = [b"cold", b"hot"];
const ROWS: u64 = 12;
/// The row with the counter that every commit increments.
const COUNT_ROW: &[u8] = b"count";

/// The cells of a table, keyed by row, family and qualifier.
pub type Cells = BTreeMap<(Vec<u8>, Vec<u8>, Vec<u8>), Vec<u8>>;
pub type Contents = BTreeMap<TableId, Cells>;

/// A change, in a form that both the store and the model accept.
#[derive(Clone, Debug)]
enum Change {
    DeleteRange(Vec<u8>, Vec<u8>),
    DeleteRow(Vec<u8>),
    DeleteFamily(Vec<u8>, usize),
    Set(Vec<u8>, usize, Vec<u8>),
    Add(Vec<u8>, usize, i64),
}

/// A commit to one or more tables.
#[derive(Clone, Debug)]
pub struct AppliedCommit {
    pub txn: Txn,
    tables: Vec<(TableId, Vec<Change>)>,
}

impl AppliedCommit {
    /// Returns a random commit to at least one of `tables`. Every cell it sets contains
    /// its sequence number.
    pub fn random(die: &Die, sequence: u64, tables: &[TableId]) -> AppliedCommit {
        let mut chosen: Vec<TableId> = tables.iter().copied().filter(|_| die.one_in(2)).collect();
        if chosen.is_empty() {
            chosen.push(die.pick(tables));
        }
        let tables =
            chosen.into_iter().map(|table| (table, random_changes(die, sequence))).collect();
        AppliedCommit { txn: Txn::ZERO, tables }
    }

    pub fn commit(&self) -> Commit {
        let mut commit = CommitBuilder::new();
        for (table, changes) in &self.tables {
            commit.table(*table);
            let mut open: Option<&[u8]> = None;
            for change in changes {
                let row = match change {
                    Change::DeleteRange(start, end) => {
                        commit.delete_range(&RowRange::new(start.clone(), end.clone()));
                        continue;
                    }
                    Change::DeleteRow(row)
                    | Change::DeleteFamily(row, _)
                    | Change::Set(row, _, _)
                    | Change::Add(row, _, _) => row,
                };
                if open != Some(row) {
                    commit.row(row);
                    open = Some(row);
                }
                match change {
                    Change::DeleteRange(..) => unreachable!("handled above"),
                    Change::DeleteRow(_) => commit.delete_row(),
                    Change::DeleteFamily(_, family) => commit.delete_family(FAMILIES[*family]),
                    Change::Set(_, family, value) => commit.set(FAMILIES[*family], b"q", 0, value),
                    Change::Add(_, family, number) => {
                        let operand = number.to_be_bytes();
                        commit.merge(FoldId::SUM, FAMILIES[*family], b"n", 0, &operand)
                    }
                };
            }
        }
        commit.finish()
    }

    /// Applies the commit to the model.
    pub fn apply(&self, contents: &mut Contents) {
        for (table, changes) in &self.tables {
            let Some(cells) = contents.get_mut(table) else { continue };
            for change in changes {
                change.apply(cells);
            }
        }
    }
}

impl Change {
    fn apply(&self, cells: &mut Cells) {
        match self {
            Change::DeleteRange(start, end) => {
                cells.retain(|(row, _, _), _| row < start || row >= end);
            }
            Change::DeleteRow(gone) => cells.retain(|(row, _, _), _| row != gone),
            Change::DeleteFamily(in_row, gone) => {
                cells.retain(|(row, family, _), _| row != in_row || family != FAMILIES[*gone]);
            }
            Change::Set(row, family, value) => {
                let at = (row.clone(), FAMILIES[*family].to_vec(), b"q".to_vec());
                cells.insert(at, value.clone());
            }
            Change::Add(row, family, number) => {
                let at = (row.clone(), FAMILIES[*family].to_vec(), b"n".to_vec());
                let sum = cells.entry(at).or_insert_with(|| 0i64.to_be_bytes().to_vec());
                let old = i64::from_be_bytes(sum.as_slice().try_into().expect("a sum"));
                *sum = (old + number).to_be_bytes().to_vec();
            }
        }
    }
}

/// Returns random changes with ascending rows. Every commit increments a counter in
/// every group, so that a commit applied twice or partially is detected.
fn random_changes(die: &Die, sequence: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    if die.one_in(25) {
        let (a, b) = (row(die.below(ROWS)), row(die.below(ROWS)));
        changes.push(Change::DeleteRange(a.clone().min(b.clone()), a.max(b)));
    }
    for family in 0..FAMILIES.len() {
        changes.push(Change::Add(COUNT_ROW.to_vec(), family, 1));
        changes.push(Change::Set(COUNT_ROW.to_vec(), family, sequence.to_be_bytes().to_vec()));
    }
    for number in 0..ROWS {
        if !die.one_in(4) {
            continue;
        }
        let family = die.below(2) as usize;
        let row = row(number);
        changes.push(match die.below(12) {
            0 => Change::DeleteRow(row),
            1 => Change::DeleteFamily(row, family),
            2..6 => Change::Add(row, family, sequence as i64),
            _ => {
                let length = if die.one_in(12) { 3000 } else { die.below(120) };
                let mut value = sequence.to_be_bytes().to_vec();
                value.resize(8 + length as usize, sequence as u8);
                Change::Set(row, family, value)
            }
        });
    }
    changes
}

/// Returns a row that commits write.
pub fn random_row(die: &Die) -> Vec<u8> {
    row(die.below(ROWS))
}

fn row(number: u64) -> Vec<u8> {
    format!("row{number:02}").into_bytes()
}

/// Returns everything that a store reads from one table, and the snapshot's txn.
pub fn read_table(store: &Store, table: TableId, view: View) -> Result<(Cells, Txn)> {
    let mut cells = Cells::new();
    let spec = ScanSpec { view, ..ScanSpec::default() };
    let txn = store.read(table, spec, |cell| {
        let at = (cell.row.to_vec(), cell.family.to_vec(), cell.qualifier.to_vec());
        let twice = cells.insert(at, cell.value.to_vec());
        assert!(twice.is_none(), "one version of a cell came twice");
    })?;
    Ok((cells, txn))
}
