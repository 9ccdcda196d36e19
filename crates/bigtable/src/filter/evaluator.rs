//! Evaluates a filter over the cells of a scan, row by row, and passes those that
//! the filter keeps to an output. Cells are borrowed, and copied only where the
//! filter has to see the whole row before it can decide.

use std::sync::Arc;

use stele_engine::world::Random;
use stele_engine::{CellView, Flow};

use super::held_row::HeldRow;
use super::large_row::LargeRow;
use super::program::{Change, ProgramOutput};
use super::program_state::ProgramState;
use super::residual::{ResidualFilter, Strategy};

/// The destination of the cells that a filter keeps.
pub trait Output {
    /// Called in row order with a cell, its value stripped if the filter strips
    /// it, and its label. Copies of a cell are adjacent.
    fn cell(&mut self, cell: &CellView<'_>, label: Option<&str>);
}

/// A running evaluation of a filter.
pub struct Evaluator {
    strategy: Strategy,
    labels: Vec<Arc<str>>,
    state: ProgramState,
    /// The row and column of the last cell.
    row: Option<Vec<u8>>,
    spare_row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    skip: Flow,
    held: HeldRow,
}

impl Evaluator {
    pub(super) fn new(residual: ResidualFilter, random: Arc<dyn Random>) -> Evaluator {
        Evaluator {
            strategy: residual.strategy,
            labels: residual.labels,
            state: ProgramState::new(residual.counters, random),
            row: None,
            spare_row: Vec::new(),
            family: Vec::new(),
            qualifier: Vec::new(),
            skip: Flow::Continue,
            held: HeldRow::default(),
        }
    }

    /// Processes the next cell. A cell of a new row ends the previous row.
    /// Returns which of the following cells will be dropped regardless of their
    /// contents; the reader may skip them.
    #[inline]
    pub fn cell(
        &mut self,
        cell: &CellView<'_>,
        output: &mut impl Output,
    ) -> Result<Flow, LargeRow> {
        match self.strategy {
            Strategy::PassAll => {
                output.cell(cell, None);
                Ok(Flow::Continue)
            }
            Strategy::BlockAll => Ok(Flow::Stop),
            Strategy::Cells(_) | Strategy::Rows(_) => self.filter(cell, output),
        }
    }

    /// Returns the bytes that are held until the current row ends.
    pub fn held_bytes(&self) -> usize {
        match self.strategy {
            Strategy::Rows(_) if self.row.is_some() => self.state.row_bytes as usize,
            _ => 0,
        }
    }

    /// Ends the current row, if any, and outputs what is held of it. Must be
    /// called after the last cell.
    pub fn end_row(&mut self, output: &mut impl Output) -> Result<(), LargeRow> {
        let Some(row) = self.row.take() else { return Ok(()) };
        let outcome = match &self.strategy {
            Strategy::Rows(stages) => {
                self.held.finish(stages, &mut self.state, &self.labels, output)
            }
            _ => Ok(()),
        };
        let outcome = outcome.map_err(|bytes| LargeRow { row: row.clone(), bytes });
        self.spare_row = row;
        outcome
    }

    fn filter(&mut self, cell: &CellView<'_>, output: &mut impl Output) -> Result<Flow, LargeRow> {
        if self.row.as_deref() != Some(cell.row) {
            self.end_row(output)?;
            self.begin_row(cell);
        } else if self.qualifier != cell.qualifier || self.family != cell.family {
            self.begin_column(cell);
        }
        if self.skip > Flow::Continue {
            return Ok(self.skip);
        }
        self.skip = match &self.strategy {
            Strategy::Cells(program) => {
                let mut direct = Direct { cell, labels: &self.labels, output };
                program.run(&mut self.state, cell, Change::default(), &mut direct)
            }
            Strategy::Rows(stages) => self.held.keep(stages, &mut self.state, cell),
            Strategy::PassAll | Strategy::BlockAll => {
                unreachable!("decided without looking at the cell")
            }
        };
        if self.state.is_too_large() {
            return Err(LargeRow { row: cell.row.to_vec(), bytes: self.state.row_bytes });
        }
        Ok(self.skip)
    }

    fn begin_row(&mut self, cell: &CellView<'_>) {
        let mut row = std::mem::take(&mut self.spare_row);
        row.clear();
        row.extend_from_slice(cell.row);
        self.row = Some(row);
        self.state.row += 1;
        self.state.row_bytes = 0;
        if let Strategy::Rows(_) = self.strategy {
            self.held.begin(cell.row);
        }
        self.skip = Flow::Continue;
        self.begin_column(cell);
    }

    fn begin_column(&mut self, cell: &CellView<'_>) {
        self.family.clear();
        self.family.extend_from_slice(cell.family);
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier);
        self.state.column += 1;
        if self.skip == Flow::NextColumn {
            self.skip = Flow::Continue;
        }
    }
}

/// Passes a copy of a cell to the output.
pub(super) fn emit(
    cell: &CellView<'_>,
    change: Change,
    labels: &[Arc<str>],
    output: &mut impl Output,
) {
    let label = change.label.checked_sub(1).map(|at| &*labels[usize::from(at)]);
    if change.stripped {
        output.cell(&CellView { value: &[], ..*cell }, label);
    } else {
        output.cell(cell, label);
    }
}

/// Forwards the results of a program directly to the output.
struct Direct<'d, O> {
    cell: &'d CellView<'d>,
    labels: &'d [Arc<str>],
    output: &'d mut O,
}

impl<O: Output> ProgramOutput for Direct<'_, O> {
    #[inline]
    fn pass(&mut self, change: Change) {
        emit(self.cell, change, self.labels, self.output);
    }

    fn sink(&mut self, change: Change) {
        self.pass(change);
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::Txn;
    use stele_engine::world::SeededRandom;

    use super::super::Filter;
    use super::super::messages::*;
    use super::*;
    use crate::proto::v2;
    use crate::proto::v2::row_filter::Filter as Kind;

    fn family(regex: &str) -> Kind {
        Kind::FamilyNameRegexFilter(regex.into())
    }

    fn qualifier(regex: &'static str) -> Kind {
        Kind::ColumnQualifierRegexFilter(regex.into())
    }

    fn value(regex: &'static str) -> Kind {
        Kind::ValueRegexFilter(regex.into())
    }

    /// Two rows, two families, three columns, up to three versions.
    const CELLS: [(&str, &str, &str, i64, &str); 9] = [
        ("r1", "a", "x", 3, "3"),
        ("r1", "a", "x", 2, "2"),
        ("r1", "a", "x", 1, "1"),
        ("r1", "a", "y", 5, "five"),
        ("r1", "b", "x", 4, ""),
        ("r1", "b", "x", 3, "\x03"),
        ("r2", "a", "y", 2, "2"),
        ("r2", "b", "x", 2, "\x02"),
        ("r2", "b", "x", 1, "1"),
    ];

    fn view<'c>(
        (row, family, qualifier, timestamp, value): &(&'c str, &'c str, &'c str, i64, &'c str),
    ) -> CellView<'c> {
        CellView {
            row: row.as_bytes(),
            family: family.as_bytes(),
            qualifier: qualifier.as_bytes(),
            timestamp: *timestamp,
            txn: Txn::ZERO,
            marker: false,
            value: value.as_bytes(),
        }
    }

    #[derive(Default)]
    struct Lines(Vec<String>);

    impl Output for Lines {
        fn cell(&mut self, cell: &CellView<'_>, label: Option<&str>) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let label = label.map_or(String::new(), |label| format!(" {label}"));
            let names = [cell.row, cell.family, cell.qualifier].map(text).join(".");
            self.0.push(format!("{names}@{}={}{label}", cell.timestamp, cell.value.escape_ascii()));
        }
    }

    fn evaluator(kind: Kind) -> Evaluator {
        let filter = Filter::compile(Some(&row_filter(kind))).unwrap();
        filter.whole().evaluator(Arc::new(SeededRandom::new(7)))
    }

    fn read(kind: Kind) -> Vec<String> {
        let mut evaluator = evaluator(kind);
        let mut lines = Lines::default();
        for cell in &CELLS {
            evaluator.cell(&view(cell), &mut lines).unwrap();
        }
        evaluator.end_row(&mut lines).unwrap();
        lines.0
    }

    /// Returns the indexes in `CELLS` of the cells that pass unchanged.
    fn passing(kind: Kind) -> Vec<usize> {
        let all = read(PASS);
        let index = |line: &String| all.iter().position(|cell| cell == line).unwrap();
        read(kind).iter().map(index).collect()
    }

    #[test]
    fn each_filter_keeps_its_cells() {
        let times = |start_timestamp_micros, end_timestamp_micros| {
            Kind::TimestampRangeFilter(v2::TimestampRange {
                start_timestamp_micros,
                end_timestamp_micros,
            })
        };
        let columns = |family: &str, start, end| {
            Kind::ColumnRangeFilter(v2::ColumnRange {
                family_name: family.into(),
                start_qualifier: start,
                end_qualifier: end,
            })
        };
        let values = |start_value, end_value| {
            Kind::ValueRangeFilter(v2::ValueRange { start_value, end_value })
        };
        let mask =
            |mask: &'static [u8]| Kind::ValueBitmaskFilter(v2::ValueBitmask { mask: mask.into() });
        use v2::column_range::{EndQualifier, StartQualifier};
        use v2::value_range::{EndValue, StartValue};
        let cases = [
            (PASS, vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            (BLOCK, vec![]),
            (Kind::RowKeyRegexFilter("r2".into()), vec![6, 7, 8]),
            (Kind::RowKeyRegexFilter("r".into()), vec![]),
            (family("a"), vec![0, 1, 2, 3, 6]),
            (family("c"), vec![]),
            (qualifier("y|z"), vec![3, 6]),
            (value("[0-9]"), vec![0, 1, 2, 6, 8]),
            (value(""), vec![4]),
            (columns("a", None, None), vec![0, 1, 2, 3, 6]),
            (columns("a", Some(StartQualifier::StartQualifierOpen("x".into())), None), vec![3, 6]),
            (columns("a", None, Some(EndQualifier::EndQualifierClosed("x".into()))), vec![0, 1, 2]),
            (columns("a", None, Some(EndQualifier::EndQualifierOpen("x".into()))), vec![]),
            (
                values(
                    Some(StartValue::StartValueOpen("1".into())),
                    Some(EndValue::EndValueClosed("3".into())),
                ),
                vec![0, 1, 6],
            ),
            (
                values(
                    Some(StartValue::StartValueClosed("1".into())),
                    Some(EndValue::EndValueOpen("2".into())),
                ),
                vec![2, 8],
            ),
            (times(2, 4), vec![0, 1, 5, 6, 7]),
            (times(3, 0), vec![0, 3, 4, 5]),
            (times(0, 2), vec![2, 8]),
            (times(4, 2), vec![]),
            (mask(b"\x02"), vec![0, 1, 5, 6, 7]),
            (mask(b"fi\0e"), vec![3]),
            (Kind::CellsPerRowOffsetFilter(2), vec![2, 3, 4, 5, 8]),
            (Kind::CellsPerRowOffsetFilter(9), vec![]),
            (Kind::CellsPerRowLimitFilter(2), vec![0, 1, 6, 7]),
            (Kind::CellsPerColumnLimitFilter(1), vec![0, 3, 4, 6, 7]),
            (Kind::CellsPerColumnLimitFilter(2), vec![0, 1, 3, 4, 5, 6, 7, 8]),
        ];
        for (kind, expected) in cases {
            assert_eq!(passing(kind.clone()), expected, "{kind:?}");
        }
    }

    #[test]
    fn the_order_of_a_chain_matters() {
        let limit = Kind::CellsPerColumnLimitFilter(1);
        assert_eq!(passing(chain([limit.clone(), value("[0-9]")])), [0, 6]);
        assert_eq!(passing(chain([value("[0-9]"), limit])), [0, 6, 8]);
        assert_eq!(read(chain([STRIP, value("2")])), [""; 0]);
        let stripped = ["r1.a.x@2=", "r2.a.y@2="];
        assert_eq!(read(chain([value("2"), STRIP])), stripped);
        // Cells that the second limit drops have been counted by the first.
        let rows = Kind::CellsPerRowLimitFilter(4);
        let columns = Kind::CellsPerColumnLimitFilter(1);
        assert_eq!(passing(chain([rows, columns])), [0, 3, 6, 7]);
    }

    #[test]
    fn an_interleave_keeps_copies_and_their_order() {
        let copies = interleave([chain([label("one"), qualifier("y")]), PASS, STRIP]);
        let copies = chain([Kind::RowKeyRegexFilter("r2".into()), copies]);
        let expected = [
            "r2.a.y@2=2 one",
            "r2.a.y@2=2",
            "r2.a.y@2=",
            "r2.b.x@2=\\x02",
            "r2.b.x@2=",
            "r2.b.x@1=1",
            "r2.b.x@1=",
        ];
        assert_eq!(read(copies.clone()), expected);
        let limited = chain([copies.clone(), Kind::CellsPerRowLimitFilter(4)]);
        assert_eq!(read(limited), expected[..4]);
        let limited = chain([copies, Kind::CellsPerColumnLimitFilter(1)]);
        assert_eq!(read(limited), [expected[0], expected[3]]);
    }

    #[test]
    fn a_sink_goes_past_all_that_follows() {
        let marked = chain([label("sunk"), SINK]);
        let filter = chain([family("a"), interleave([PASS, marked.clone()]), qualifier("y")]);
        let expected = [
            "r1.a.x@3=3 sunk",
            "r1.a.x@2=2 sunk",
            "r1.a.x@1=1 sunk",
            "r1.a.y@5=five",
            "r1.a.y@5=five sunk",
            "r2.a.y@2=2",
            "r2.a.y@2=2 sunk",
        ];
        assert_eq!(read(filter), expected);
        let only_sunk = chain([interleave([marked, BLOCK]), BLOCK]);
        assert_eq!(read(only_sunk).len(), CELLS.len());
    }

    #[test]
    fn a_condition_is_decided_by_the_whole_row() {
        let five = value("five");
        let filter = condition(five.clone(), Some(qualifier("y")), Some(STRIP));
        let stripped = ["r2.a.y@2=", "r2.b.x@2=", "r2.b.x@1="];
        assert_eq!(read(filter), [&["r1.a.y@5=five"][..], &stripped].concat());
        assert_eq!(passing(condition(five.clone(), None, Some(PASS))), [6, 7, 8]);
        assert_eq!(passing(condition(five.clone(), Some(PASS), None)), [0, 1, 2, 3, 4, 5]);
        // Only cells that reach the predicate matter.
        let cut = chain([Kind::CellsPerRowLimitFilter(3), condition(five, Some(PASS), None)]);
        assert_eq!(passing(cut), [0usize; 0]);
    }

    #[test]
    fn a_sample_takes_or_leaves_whole_rows() {
        let mut evaluator = evaluator(Kind::RowSampleFilter(0.25));
        let mut lines = Lines::default();
        for row in 0..4000 {
            let row = format!("{row:04}");
            for cell in &CELLS[..3] {
                evaluator
                    .cell(&CellView { row: row.as_bytes(), ..view(cell) }, &mut lines)
                    .unwrap();
            }
        }
        evaluator.end_row(&mut lines).unwrap();
        assert_eq!(lines.0.len() % 3, 0);
        assert!(lines.0.chunks(3).all(|cells| cells[0][..4] == cells[2][..4]));
        let rows = lines.0.len() / 3;
        assert!((900..1100).contains(&rows), "{rows} of 4000 rows");
    }

    #[test]
    fn a_row_can_be_read_again() {
        let mut evaluator = evaluator(Kind::CellsPerRowLimitFilter(1));
        let mut lines = Lines::default();
        for _ in 0..2 {
            assert_eq!(evaluator.cell(&view(&CELLS[0]), &mut lines), Ok(Flow::NextRow));
            assert_eq!(evaluator.cell(&view(&CELLS[1]), &mut lines), Ok(Flow::NextRow));
            evaluator.end_row(&mut lines).unwrap();
        }
        assert_eq!(lines.0, ["r1.a.x@3=3"; 2]);
    }

    #[test]
    fn copies_without_end_are_refused() {
        let double = interleave([PASS, PASS]);
        let doubled = (0..500).map(|_| double.clone());
        let streamed = chain(doubled.clone().chain([value("none")]));
        let held = chain([condition(value("3"), Some(PASS), None)].into_iter().chain(doubled));
        let nested = (0..9).fold(condition(value("3"), Some(PASS), None), |inner, _| {
            chain([interleave([inner, PASS]), double.clone()])
        });
        for (kind, limit) in [(streamed, 1 << 20), (held, 1 << 20), (nested, 1 << 14)] {
            let mut evaluator = evaluator(kind);
            evaluator.state.row_bytes_max = limit;
            let mut lines = Lines::default();
            let outcome = evaluator.cell(&view(&CELLS[0]), &mut lines).map(|_| ());
            let outcome = outcome.and_then(|()| evaluator.end_row(&mut lines));
            let large = outcome.unwrap_err();
            assert_eq!(large.row, b"r1");
            assert!(large.bytes > limit && large.bytes < 2 * limit, "{large:?}");
        }
    }

    #[test]
    fn nothing_is_held_of_a_row_after_its_end() {
        let mut evaluator = evaluator(condition(value("none"), None, Some(PASS)));
        let mut lines = Lines::default();
        let value = vec![b'v'; 8 << 20];
        for cell in &CELLS[..4] {
            evaluator.cell(&CellView { value: &value, ..view(cell) }, &mut lines).unwrap();
        }
        let bytes = 4 * value.len();
        assert!(evaluator.held_bytes() >= bytes && evaluator.held.capacity() >= bytes);
        evaluator.end_row(&mut lines).unwrap();
        assert_eq!((evaluator.held_bytes(), lines.0.len()), (0, 4));
        assert!(evaluator.held.capacity() <= 1 << 20, "{}", evaluator.held.capacity());
    }

    #[test]
    fn a_held_row_is_limited_but_not_the_rows_together() {
        let mut evaluator = evaluator(condition(value("none"), None, Some(PASS)));
        evaluator.state.row_bytes_max = 7 * 100;
        let mut lines = Lines::default();
        for row in 0..50 {
            let row = format!("{row:02}");
            for cell in &CELLS[..6] {
                evaluator
                    .cell(&CellView { row: row.as_bytes(), ..view(cell) }, &mut lines)
                    .unwrap();
            }
        }
        evaluator.end_row(&mut lines).unwrap();
        assert_eq!(lines.0.len(), 50 * 6);
        let value = [b'v'; 300];
        let outcome = CELLS[..6].iter().try_for_each(|cell| {
            evaluator.cell(&CellView { row: b"large", value: &value, ..view(cell) }, &mut lines)?;
            Ok::<_, LargeRow>(())
        });
        assert_eq!(outcome.unwrap_err().row, b"large");
        assert_eq!(lines.0.len(), 50 * 6);
    }
}
