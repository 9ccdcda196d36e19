//! The normal form of a row's mutations.
//!
//! All mutations of a commit share one txn, so their order within a row must be
//! resolved before they are stored: they are applied in the given order, which leaves
//! tombstones and the cells that survive them. Everywhere else a tombstone of txn T
//! covers only cells with a txn below T.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::commit::{Mutation, TimeRange};
use super::fold::{FoldId, Folds};
use super::key::{self, Kind};
use crate::error::{Error, Result};
use crate::txn::Txn;

/// A row's changes as tombstones followed by surviving cells, in key order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NormalRow<'a> {
    pub row_deleted: bool,
    pub families_deleted: Vec<&'a [u8]>,
    pub columns_deleted: Vec<ColumnDelete<'a>>,
    pub cells: Vec<NormalCell<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ColumnDelete<'a> {
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    /// Sorted and disjoint.
    pub times: Vec<TimeRange>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NormalCell<'a> {
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
    pub kind: Kind,
    pub value: Cow<'a, [u8]>,
}

impl<'a> NormalCell<'a> {
    fn of(mutation: &Mutation<'a>) -> Option<NormalCell<'a>> {
        let (family, qualifier, timestamp, kind, value) = match *mutation {
            Mutation::Set { family, qualifier, timestamp, value } => {
                (family, qualifier, timestamp, Kind::Put, value)
            }
            Mutation::Mark { family, qualifier, timestamp, value } => {
                (family, qualifier, timestamp, Kind::Marker, value)
            }
            Mutation::Merge { fold, family, qualifier, timestamp, operand } => {
                (family, qualifier, timestamp, Kind::Merge(fold.0), operand)
            }
            _ => return None,
        };
        Some(NormalCell { family, qualifier, timestamp, kind, value: Cow::Borrowed(value) })
    }

    fn order(&self) -> CellOrder<'a> {
        (self.family, self.qualifier, Reverse(self.timestamp))
    }
}

type CellOrder<'a> = (&'a [u8], &'a [u8], Reverse<i64>);

/// Converts a row's mutations to normal form.
pub fn normalize<'a>(mutations: &[Mutation<'a>], folds: &Folds) -> Result<NormalRow<'a>> {
    if let Some(cells) = already_normal(mutations) {
        return Ok(NormalRow { cells, ..NormalRow::default() });
    }
    let mut builder = RowBuilder::new(folds);
    for mutation in mutations {
        builder.add(mutation)?;
    }
    Ok(builder.finish())
}

/// Returns the mutations as cells if they are only cells in strictly ascending order,
/// as in most rows of most commits.
fn already_normal<'a>(mutations: &[Mutation<'a>]) -> Option<Vec<NormalCell<'a>>> {
    let mut cells: Vec<NormalCell<'a>> = Vec::with_capacity(mutations.len());
    for mutation in mutations {
        let cell = NormalCell::of(mutation)?;
        if cells.last().is_some_and(|last| last.order() >= cell.order()) {
            return None;
        }
        cells.push(cell);
    }
    Some(cells)
}

struct RowBuilder<'a, 'f> {
    folds: &'f Folds,
    row_deleted: bool,
    families_deleted: BTreeSet<&'a [u8]>,
    columns_deleted: BTreeMap<(&'a [u8], &'a [u8]), Vec<TimeRange>>,
    cells: BTreeMap<CellOrder<'a>, (Kind, Cow<'a, [u8]>)>,
    /// The number of cells that deletes have examined.
    #[cfg(test)]
    visited: usize,
}

impl<'a, 'f> RowBuilder<'a, 'f> {
    fn new(folds: &'f Folds) -> RowBuilder<'a, 'f> {
        RowBuilder {
            folds,
            row_deleted: false,
            families_deleted: BTreeSet::new(),
            columns_deleted: BTreeMap::new(),
            cells: BTreeMap::new(),
            #[cfg(test)]
            visited: 0,
        }
    }

    fn add(&mut self, mutation: &Mutation<'a>) -> Result<()> {
        match *mutation {
            Mutation::Set { .. } | Mutation::Mark { .. } | Mutation::Merge { .. } => {
                let cell = NormalCell::of(mutation).expect("these mutations write cells");
                return self.put(cell);
            }
            Mutation::DeleteCells { family, qualifier, times } => {
                if !times.is_empty() {
                    let (newest, oldest) = (Reverse(times.max), Reverse(times.min));
                    let order = |at| (family, qualifier, at);
                    let gone = self.cells.range(order(newest)..=order(oldest));
                    let gone = gone.map(|(order, _)| *order).collect();
                    self.remove(gone);
                    let ranges = self.columns_deleted.entry((family, qualifier)).or_default();
                    ranges.push(times);
                }
            }
            Mutation::DeleteFamily { family } => {
                let first: CellOrder<'_> = (family, &[], Reverse(i64::MAX));
                let cells = self.cells.range(first..).map(|(order, _)| *order);
                let gone = cells.take_while(|order| order.0 == family).collect();
                self.remove(gone);
                let columns = self.columns_deleted.range((family, &[][..])..);
                let columns = columns.map(|(column, _)| *column);
                let gone: Vec<_> = columns.take_while(|column| column.0 == family).collect();
                for column in gone {
                    self.columns_deleted.remove(&column);
                }
                self.families_deleted.insert(family);
            }
            Mutation::DeleteRow => {
                self.cells.clear();
                self.columns_deleted.clear();
                self.families_deleted.clear();
                self.row_deleted = true;
            }
        }
        Ok(())
    }

    /// Removes cells that a later mutation deletes. Each cell is removed at most once,
    /// so the mutations of a row take O(n log n) in total.
    fn remove(&mut self, gone: Vec<CellOrder<'a>>) {
        #[cfg(test)]
        {
            self.visited += gone.len();
        }
        for order in gone {
            self.cells.remove(&order);
        }
    }

    fn put(&mut self, cell: NormalCell<'a>) -> Result<()> {
        let order = cell.order();
        let merged = match (cell.kind, self.cells.get(&order)) {
            (Kind::Merge(fold), Some((below, older))) => {
                self.merge_over(fold, *below, older, cell.value)?
            }
            (kind, _) => (kind, cell.value),
        };
        self.cells.insert(order, merged);
        Ok(())
    }

    /// Merges an operand into an earlier change of the same commit.
    fn merge_over(
        &self,
        fold: u8,
        below: Kind,
        older: &[u8],
        operand: Cow<'a, [u8]>,
    ) -> Result<(Kind, Cow<'a, [u8]>)> {
        match below {
            Kind::Put => {
                Ok((Kind::Put, Cow::Owned(self.folds.fold(FoldId(fold), older, &operand)?)))
            }
            Kind::Marker => Ok((Kind::Put, operand)),
            Kind::Merge(same) if same == fold => {
                Ok((Kind::Merge(fold), Cow::Owned(self.folds.fold(FoldId(fold), older, &operand)?)))
            }
            Kind::Merge(_) => Err(Error::InvalidMutation(
                "a commit merges operands of two folds into one cell".into(),
            )),
            Kind::Tombstone => unreachable!("cells are never tombstones"),
        }
    }

    fn finish(self) -> NormalRow<'a> {
        let columns_deleted = self
            .columns_deleted
            .into_iter()
            .map(|((family, qualifier), times)| ColumnDelete {
                family,
                qualifier,
                times: coalesce(times),
            })
            .collect();
        let cells = self
            .cells
            .into_iter()
            .map(|((family, qualifier, Reverse(timestamp)), (kind, value))| NormalCell {
                family,
                qualifier,
                timestamp,
                kind,
                value,
            })
            .collect();
        NormalRow {
            row_deleted: self.row_deleted,
            families_deleted: self.families_deleted.into_iter().collect(),
            columns_deleted,
            cells,
        }
    }
}

/// Sorts ranges and merges those that overlap or are adjacent.
fn coalesce(mut times: Vec<TimeRange>) -> Vec<TimeRange> {
    times.sort_unstable();
    let mut joined: Vec<TimeRange> = Vec::with_capacity(times.len());
    for range in times {
        match joined.last_mut() {
            Some(last) if range.min <= last.max.saturating_add(1) => {
                last.max = last.max.max(range.max);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Encodes the value of a column tombstone: its time ranges, 16 bytes each.
pub fn encode_times(times: &[TimeRange], out: &mut Vec<u8>) {
    for range in times {
        out.extend_from_slice(&range.min.to_le_bytes());
        out.extend_from_slice(&range.max.to_le_bytes());
    }
}

/// Decodes the output of `encode_times`; ignores a truncated tail.
pub fn decode_times(value: &[u8]) -> impl Iterator<Item = TimeRange> {
    let integer = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    value
        .chunks_exact(16)
        .map(move |pair| TimeRange { min: integer(&pair[..8]), max: integer(&pair[8..]) })
}

/// Appends the key of a tombstone over a row, family or column, without its txn.
pub fn push_tombstone(
    out: &mut Vec<u8>,
    row: &[u8],
    family: Option<&[u8]>,
    qualifier: Option<&[u8]>,
) {
    match (family, qualifier) {
        (None, _) => key::push_row(out, row),
        (Some(family), None) => key::push_family(out, row, family),
        (Some(family), Some(qualifier)) => key::push_column(out, row, family, qualifier),
    }
    key::push_tombstone_tail(out, Txn::ZERO);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies mutations one by one to a plain map; defines what their order means.
    #[derive(Clone, Default, Debug, PartialEq)]
    struct Naive(BTreeMap<(&'static [u8], &'static [u8], i64), i64>);

    impl Naive {
        fn apply(&mut self, mutation: &Mutation<'static>) {
            let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
            match *mutation {
                Mutation::Set { family, qualifier, timestamp, value } => {
                    self.0.insert((family, qualifier, timestamp), number(value));
                }
                Mutation::Mark { family, qualifier, timestamp, .. } => {
                    self.0.remove(&(family, qualifier, timestamp));
                }
                Mutation::Merge { family, qualifier, timestamp, operand, .. } => {
                    *self.0.entry((family, qualifier, timestamp)).or_default() += number(operand);
                }
                Mutation::DeleteCells { family, qualifier, times } => {
                    self.0.retain(|k, _| (k.0, k.1) != (family, qualifier) || !times.contains(k.2));
                }
                Mutation::DeleteFamily { family } => self.0.retain(|k, _| k.0 != family),
                Mutation::DeleteRow => self.0.clear(),
            }
        }

        /// Applies tombstones first and then cells, as storing the normal form does.
        fn apply_normal(&mut self, normal: &NormalRow<'static>) {
            if normal.row_deleted {
                self.0.clear();
            }
            for family in &normal.families_deleted {
                self.apply(&Mutation::DeleteFamily { family });
            }
            for column in &normal.columns_deleted {
                for &times in &column.times {
                    let (family, qualifier) = (column.family, column.qualifier);
                    self.apply(&Mutation::DeleteCells { family, qualifier, times });
                }
            }
            for cell in &normal.cells {
                let at = (cell.family, cell.qualifier, cell.timestamp);
                let value = cell.value.as_ref().try_into().map_or(0, i64::from_be_bytes);
                match cell.kind {
                    Kind::Put => drop(self.0.insert(at, value)),
                    Kind::Marker => drop(self.0.remove(&at)),
                    _ => *self.0.entry(at).or_default() += value,
                }
            }
        }
    }

    const ONE: [u8; 8] = 1i64.to_be_bytes();
    const TEN: [u8; 8] = 10i64.to_be_bytes();

    fn choices() -> Vec<Mutation<'static>> {
        let (family, qualifier) = (&b"f"[..], &b"q"[..]);
        vec![
            Mutation::Set { family, qualifier, timestamp: 5, value: &TEN },
            Mutation::Set { family, qualifier, timestamp: 7, value: &ONE },
            Mutation::Set { family: b"g", qualifier, timestamp: 5, value: &ONE },
            Mutation::Mark { family, qualifier, timestamp: 5, value: b"" },
            Mutation::Merge { fold: FoldId::SUM, family, qualifier, timestamp: 5, operand: &ONE },
            Mutation::DeleteCells { family, qualifier, times: TimeRange { min: 0, max: 5 } },
            Mutation::DeleteCells { family, qualifier, times: TimeRange::ALL },
            Mutation::DeleteFamily { family },
            Mutation::DeleteRow,
        ]
    }

    #[test]
    fn every_order_of_four_mutations_means_what_it_says() {
        let before = Naive(BTreeMap::from([
            ((&b"f"[..], &b"q"[..], 5), 100),
            ((&b"f"[..], &b"q"[..], 6), 100),
            ((&b"g"[..], &b"q"[..], 5), 100),
        ]));
        let choices = choices();
        let count = choices.len();
        for code in 0..count.pow(4) {
            let picks = [
                code % count,
                code / count % count,
                code / count.pow(2) % count,
                code / count.pow(3),
            ];
            let mutations = picks.map(|pick| choices[pick]);
            let (mut expected, mut got) = (before.clone(), before.clone());
            for mutation in &mutations {
                expected.apply(mutation);
            }
            got.apply_normal(&normalize(&mutations, &Folds::default()).unwrap());
            assert_eq!(got, expected, "{mutations:?}");
        }
    }

    #[test]
    fn sets_and_deletes_in_turn_visit_each_cell_once() {
        let visited = |count: u32| {
            let names: Vec<[u8; 4]> = (0..count).map(u32::to_be_bytes).collect();
            let folds = Folds::default();
            let mut builder = RowBuilder::new(&folds);
            for (at, name) in names.iter().enumerate() {
                let family = if at % 2 == 0 { b"f" } else { b"g" };
                let set = |qualifier| Mutation::Set { family, qualifier, timestamp: 1, value: b"" };
                builder.add(&set(name)).unwrap();
                let absent =
                    Mutation::DeleteCells { family, qualifier: b"absent", times: TimeRange::ALL };
                builder.add(&absent).unwrap();
                let (qualifier, times) = (&name[..], TimeRange::ALL);
                builder.add(&Mutation::DeleteCells { family, qualifier, times }).unwrap();
                builder.add(&set(name)).unwrap();
                if at % 100 == 0 {
                    builder.add(&Mutation::DeleteFamily { family: b"f" }).unwrap();
                    builder.add(&Mutation::DeleteFamily { family: b"absent" }).unwrap();
                }
            }
            builder.visited
        };
        let (few, many) = (visited(2000), visited(4000));
        assert!(few <= 2 * 2000 && many <= 2 * few + 200, "{few} {many}");
    }

    #[test]
    fn two_folds_on_one_cell_in_one_commit_are_refused() {
        let merge = |fold| Mutation::Merge {
            fold,
            family: b"f",
            qualifier: b"q",
            timestamp: 1,
            operand: &ONE,
        };
        let both = [merge(FoldId::SUM), merge(FoldId::MAX)];
        let refused = normalize(&both, &Folds::default());
        assert!(matches!(refused, Err(Error::InvalidMutation(_))));
    }

    #[test]
    fn time_ranges_round_trip_and_join_where_they_touch() {
        let range = |min, max| TimeRange { min, max };
        let joined =
            coalesce(vec![range(8, 9), range(1, 3), range(4, 5), range(i64::MAX, i64::MAX)]);
        assert_eq!(joined, [range(1, 5), range(8, 9), range(i64::MAX, i64::MAX)]);
        let mut bytes = Vec::new();
        encode_times(&joined, &mut bytes);
        assert_eq!(decode_times(&bytes).collect::<Vec<_>>(), joined);
    }
}
