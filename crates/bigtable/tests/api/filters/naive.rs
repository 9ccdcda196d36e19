//! The rules of the API, applied stage by stage to lists of cells: simple and
//! slow.

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::row_filter::Filter as Kind;

use super::cells::{Cell, Seen, Table, in_order};
use super::generate::{Draw, matches};

/// A cell between two stages.
#[derive(Clone)]
struct Copy {
    cell: Cell,
    label: Option<String>,
    /// Its position in the row, followed by its position in the input of each
    /// interleave that it is in.
    positions: Vec<usize>,
}

pub fn read(table: &Table, filter: &v2::RowFilter, draw: Draw) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (row, cells) in table {
        let numbered = cells.iter().enumerate();
        let input = numbered.map(|(position, cell)| Copy {
            cell: cell.clone(),
            label: None,
            positions: vec![position],
        });
        let mut sunk = Vec::new();
        let mut output = Row { key: row, draw, sunk: &mut sunk }.filter(filter, input.collect());
        output.extend(sunk);
        output.sort_by_key(|copy| copy.positions[0]);
        let row = row.clone();
        let seen_cell = |copy: Copy| Seen { row: row.clone(), cell: copy.cell, label: copy.label };
        seen.extend(output.into_iter().map(seen_cell));
    }
    in_order(seen)
}

struct Row<'r> {
    key: &'r [u8],
    draw: Draw,
    sunk: &'r mut Vec<Copy>,
}

impl Row<'_> {
    fn filter(&mut self, filter: &v2::RowFilter, cells: Vec<Copy>) -> Vec<Copy> {
        let Some(kind) = &filter.filter else { return cells };
        let all = |keep: bool| if keep { cells.clone() } else { Vec::new() };
        let each = |keep: &dyn Fn(&Cell) -> bool| {
            cells.iter().filter(|copy| keep(&copy.cell)).cloned().collect::<Vec<_>>()
        };
        match kind {
            Kind::Chain(chain) => {
                chain.filters.iter().fold(cells, |cells, filter| self.filter(filter, cells))
            }
            Kind::Interleave(interleave) => self.interleave(&interleave.filters, &cells),
            Kind::Condition(condition) => {
                let predicate = condition.predicate_filter.as_ref().expect("it is required");
                let any = !self.filter(predicate, cells.clone()).is_empty();
                let branch = if any { &condition.true_filter } else { &condition.false_filter };
                branch.as_ref().map_or(Vec::new(), |filter| self.filter(filter, cells))
            }
            Kind::Sink(_) => {
                self.sunk.extend(cells);
                Vec::new()
            }
            Kind::PassAllFilter(_) => cells,
            Kind::BlockAllFilter(_) => Vec::new(),
            Kind::RowKeyRegexFilter(regex) => all(matches(regex, self.key)),
            Kind::RowSampleFilter(share) => all((self.draw.percent as f64) < share * 100.0),
            Kind::FamilyNameRegexFilter(regex) => {
                each(&|cell| matches(regex.as_bytes(), cell.family.as_bytes()))
            }
            Kind::ColumnQualifierRegexFilter(regex) => {
                each(&|cell| matches(regex, &cell.qualifier))
            }
            Kind::ValueRegexFilter(regex) => each(&|cell| matches(regex, &cell.value)),
            Kind::ColumnRangeFilter(range) => {
                each(&|cell| cell.family == range.family_name && in_columns(range, &cell.qualifier))
            }
            Kind::ValueRangeFilter(range) => each(&|cell| in_values(range, &cell.value)),
            Kind::TimestampRangeFilter(range) => each(&|cell| {
                let end = range.end_timestamp_micros;
                cell.timestamp >= range.start_timestamp_micros && (end == 0 || cell.timestamp < end)
            }),
            Kind::ValueBitmaskFilter(bitmask) => each(&|cell| {
                cell.value.len() == bitmask.mask.len()
                    && (0..cell.value.len())
                        .all(|at| cell.value[at] & bitmask.mask[at] == bitmask.mask[at])
            }),
            Kind::CellsPerRowOffsetFilter(count) => {
                cells.into_iter().skip(*count as usize).collect()
            }
            Kind::CellsPerRowLimitFilter(count) => {
                cells.into_iter().take(*count as usize).collect()
            }
            Kind::CellsPerColumnLimitFilter(count) => {
                let same = |a: &Copy, b: &Copy| {
                    a.cell.family == b.cell.family && a.cell.qualifier == b.cell.qualifier
                };
                let columns = cells.chunk_by(same);
                columns.flat_map(|column| column.iter().take(*count as usize)).cloned().collect()
            }
            Kind::StripValueTransformer(_) => {
                let mut cells = cells;
                cells.iter_mut().for_each(|copy| copy.cell.value.clear());
                cells
            }
            Kind::ApplyLabelTransformer(label) => {
                let mut cells = cells;
                cells.iter_mut().for_each(|copy| copy.label = Some(label.clone()));
                cells
            }
        }
    }

    fn interleave(&mut self, filters: &[v2::RowFilter], cells: &[Copy]) -> Vec<Copy> {
        let mut pool = Vec::new();
        for filter in filters {
            let mut input = cells.to_vec();
            for (position, copy) in input.iter_mut().enumerate() {
                copy.positions.push(position);
            }
            pool.extend(self.filter(filter, input));
        }
        pool.sort_by_key(|copy| *copy.positions.last().expect("each got a position above"));
        for copy in &mut pool {
            copy.positions.pop();
        }
        pool
    }
}

fn in_columns(range: &v2::ColumnRange, qualifier: &[u8]) -> bool {
    use v2::column_range::{EndQualifier, StartQualifier};
    let after_start = match &range.start_qualifier {
        None => true,
        Some(StartQualifier::StartQualifierClosed(start)) => qualifier >= &start[..],
        Some(StartQualifier::StartQualifierOpen(start)) => qualifier > &start[..],
    };
    let before_end = match &range.end_qualifier {
        None => true,
        Some(EndQualifier::EndQualifierClosed(end)) => qualifier <= &end[..],
        Some(EndQualifier::EndQualifierOpen(end)) => qualifier < &end[..],
    };
    after_start && before_end
}

fn in_values(range: &v2::ValueRange, value: &[u8]) -> bool {
    use v2::value_range::{EndValue, StartValue};
    let after_start = match &range.start_value {
        None => true,
        Some(StartValue::StartValueClosed(start)) => value >= &start[..],
        Some(StartValue::StartValueOpen(start)) => value > &start[..],
    };
    let before_end = match &range.end_value {
        None => true,
        Some(EndValue::EndValueClosed(end)) => value <= &end[..],
        Some(EndValue::EndValueOpen(end)) => value < &end[..],
    };
    after_start && before_end
}
