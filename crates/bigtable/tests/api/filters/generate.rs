//! Generates random tables and random filters over the few names that the tables
//! use.

use bytes::Bytes;
use proptest::prelude::*;
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::row_filter::{Chain, Condition, Filter as Kind, Interleave};
use stele_engine::RowRange;

use super::cells::{Cell, Table};

/// Ascending. The last family keeps only two versions.
pub const FAMILIES: [&str; 3] = ["a", "ab", "b"];
pub const VERSIONS_MAX: usize = 2;
/// Row keys; with the empty name also qualifiers and values.
static NAMES: [&[u8]; 8] = [b"", b"a", b"ab", b"abb", b"b", b"b\n", b"c\x00", b"\xff\xff"];
const FILTERS: std::ops::Range<usize> = 1..32;

/// The result of every random draw of a case.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    pub percent: u64,
}

/// A write of one cell, optionally followed by a flush.
#[derive(Clone, Debug)]
pub struct Write {
    pub row: Vec<u8>,
    pub cell: Cell,
    pub flush: bool,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub writes: Vec<Write>,
    /// The result of the writes.
    pub table: Table,
    pub filters: Vec<v2::RowFilter>,
    /// The rows that scans select; empty for all.
    pub rows: Vec<RowRange>,
    pub draw: Draw,
}

impl Case {
    pub fn selects(&self, row: &[u8]) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|range| range.contains(row))
    }
}

pub fn case() -> impl Strategy<Value = Case> {
    let writes = prop::collection::vec(write(), 0..80);
    let filters = prop::collection::vec(filter(), FILTERS);
    let rows = prop::collection::vec(row_range(), 0..3);
    let draw = prop::sample::select(vec![10, 40, 60, 90]);
    (writes, filters, rows, draw).prop_map(|(writes, filters, rows, percent)| {
        let table = table(&writes);
        Case { writes, table, filters, rows, draw: Draw { percent } }
    })
}

/// Prefers the first names, so that rows have more than one cell and columns more
/// than one version.
fn one_of(names: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let first = prop::sample::select(&names[..2]);
    prop_oneof![3 => first, 2 => prop::sample::select(names)].prop_map(<[u8]>::to_vec)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    one_of(&NAMES)
}

fn row_key() -> impl Strategy<Value = Vec<u8>> {
    one_of(&NAMES[1..])
}

fn write() -> impl Strategy<Value = Write> {
    let family = prop::sample::select(FAMILIES.to_vec());
    (row_key(), family, name(), 0..6i64, name(), prop::bool::weighted(0.05)).prop_map(
        |(row, family, qualifier, timestamp, value, flush)| Write {
            row,
            cell: Cell { family: family.into(), qualifier, timestamp, value },
            flush,
        },
    )
}

fn table(writes: &[Write]) -> Table {
    let mut table = Table::new();
    for write in writes {
        let row = table.entry(write.row.clone()).or_default();
        row.retain(|cell| Cell { value: write.cell.value.clone(), ..cell.clone() } != write.cell);
        row.push(write.cell.clone());
    }
    for row in table.values_mut() {
        let key = |cell: &Cell| (cell.family.clone(), cell.qualifier.clone(), -cell.timestamp);
        row.sort_by_key(key);
        let column = |a: &Cell, b: &Cell| a.family == b.family && a.qualifier == b.qualifier;
        let kept = |column: &[Cell]| {
            let purged = column[0].family == FAMILIES[2];
            column[..if purged { column.len().min(VERSIONS_MAX) } else { column.len() }].to_vec()
        };
        *row = row.chunk_by(column).flat_map(kept).collect();
    }
    table
}

fn row_range() -> impl Strategy<Value = RowRange> {
    prop_oneof![
        row_key().prop_map(|row| RowRange::row(&row)),
        (name(), prop::option::of(row_key())).prop_map(|(start, end)| RowRange { start, end }),
    ]
}

/// The set of texts that a pattern matches.
type Meaning = fn(&[u8]) -> bool;

const PATTERNS: [(&str, Meaning); 14] = [
    ("a", |text| text == b"a"),
    ("ab", |text| text == b"ab"),
    ("b|a", |text| text == b"a" || text == b"b"),
    ("ab?", |text| text == b"a" || text == b"ab"),
    ("[a-c]", |text| text.len() == 1 && (b'a'..=b'c').contains(&text[0])),
    ("[ab]+", |text| !text.is_empty() && text.iter().all(|byte| b"ab".contains(byte))),
    ("a.*", |text| text.starts_with(b"a") && !text.contains(&b'\n')),
    ("b\\C*", |text| text.starts_with(b"b")),
    ("\\C*b", |text| text.ends_with(b"b")),
    (".*", |text| !text.contains(&b'\n')),
    ("\\C*", |_| true),
    ("c\\x00", |text| text == b"c\0"),
    ("\\377+", |text| !text.is_empty() && text.iter().all(|byte| *byte == 0xFF)),
    ("()", |text| text.is_empty()),
];

/// Returns whether a generated pattern matches all of a text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let known = PATTERNS.iter().find(|(known, _)| known.as_bytes() == pattern);
    known.expect("only known patterns are generated").1(text)
}

fn pattern() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PATTERNS.map(|(pattern, _)| pattern).to_vec())
}

/// The end of a range, if it has one: whether it is open, and its position.
type End = Option<(bool, Bytes)>;

/// Generates two ends in order.
fn bounds() -> impl Strategy<Value = (End, End)> {
    let bound = || prop::option::weighted(0.7, (any::<bool>(), name().prop_map(Bytes::from)));
    (bound(), bound()).prop_map(|(start, end)| match (start, end) {
        (Some(start), Some(end)) if start.1 > end.1 => (Some(end), Some(start)),
        bounds => bounds,
    })
}

fn column_range() -> impl Strategy<Value = Kind> {
    use v2::column_range::{EndQualifier as End, StartQualifier as Start};
    let family = prop::sample::select(vec!["a", "ab", "b", "b", "zz"]);
    (family, bounds()).prop_map(|(family, (start, end))| {
        Kind::ColumnRangeFilter(v2::ColumnRange {
            family_name: family.into(),
            start_qualifier: start.map(|(open, at)| match open {
                true => Start::StartQualifierOpen(at),
                false => Start::StartQualifierClosed(at),
            }),
            end_qualifier: end.map(|(open, at)| match open {
                true => End::EndQualifierOpen(at),
                false => End::EndQualifierClosed(at),
            }),
        })
    })
}

fn value_range() -> impl Strategy<Value = Kind> {
    use v2::value_range::{EndValue as End, StartValue as Start};
    bounds().prop_map(|(start, end)| {
        Kind::ValueRangeFilter(v2::ValueRange {
            start_value: start.map(|(open, at)| match open {
                true => Start::StartValueOpen(at),
                false => Start::StartValueClosed(at),
            }),
            end_value: end.map(|(open, at)| match open {
                true => End::EndValueOpen(at),
                false => End::EndValueClosed(at),
            }),
        })
    })
}

fn times() -> impl Strategy<Value = Kind> {
    (0..5i64, 0..7i64).prop_map(|(start, end)| {
        Kind::TimestampRangeFilter(v2::TimestampRange {
            start_timestamp_micros: start,
            end_timestamp_micros: end,
        })
    })
}

/// Generates a filter whose result depends on which versions others have
/// excluded.
fn version_leaf() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => times(),
        3 => (1..4).prop_map(Kind::CellsPerColumnLimitFilter),
        1 => (1..6).prop_map(Kind::CellsPerRowLimitFilter),
        1 => (0..3).prop_map(Kind::CellsPerRowOffsetFilter),
        1 => pattern().prop_map(|regex| Kind::ValueRegexFilter(regex.into())),
        1 => pattern().prop_map(|regex| Kind::ColumnQualifierRegexFilter(regex.into())),
    ]
}

fn leaf() -> impl Strategy<Value = Option<Kind>> {
    let masks = vec![&b"a"[..], b"\x01", b"\x60\x02", b"\x40\x20", b"\xff\xff"];
    let mask = prop::sample::select(masks)
        .prop_map(|mask| Kind::ValueBitmaskFilter(v2::ValueBitmask { mask: mask.into() }));
    let label = prop::sample::select(vec!["x", "y-1"]);
    let kind = prop_oneof![
        1 => Just(Kind::PassAllFilter(true)),
        1 => Just(Kind::BlockAllFilter(true)),
        2 => Just(Kind::Sink(true)),
        1 => Just(Kind::StripValueTransformer(true)),
        3 => pattern().prop_map(|regex| Kind::RowKeyRegexFilter(regex.into())),
        1 => prop::sample::select(vec![0.25, 0.5, 0.75]).prop_map(Kind::RowSampleFilter),
        3 => pattern().prop_map(|regex| Kind::FamilyNameRegexFilter(regex.into())),
        3 => pattern().prop_map(|regex| Kind::ColumnQualifierRegexFilter(regex.into())),
        2 => pattern().prop_map(|regex| Kind::ValueRegexFilter(regex.into())),
        2 => column_range(),
        2 => value_range(),
        3 => times(),
        1 => mask,
        2 => (0..4).prop_map(Kind::CellsPerRowOffsetFilter),
        2 => (1..6).prop_map(Kind::CellsPerRowLimitFilter),
        4 => (1..4).prop_map(Kind::CellsPerColumnLimitFilter),
        1 => label.prop_map(|label| Kind::ApplyLabelTransformer(label.into())),
    ];
    prop::option::weighted(0.98, kind)
}

fn filter() -> impl Strategy<Value = v2::RowFilter> {
    let of_kind = |filter| v2::RowFilter { filter };
    let any = tree(leaf().prop_map(of_kind).boxed(), 5, 24);
    let flat = prop::collection::vec(leaf().prop_map(of_kind), 2..6)
        .prop_map(move |filters| of_kind(Some(Kind::Chain(Chain { filters }))));
    let versions = tree(version_leaf().prop_map(move |kind| of_kind(Some(kind))).boxed(), 2, 8);
    prop_oneof![2 => any, 1 => flat, 1 => versions].prop_map(|mut filter| {
        repair(&mut filter, false, true);
        filter
    })
}

fn tree(
    leaf: BoxedStrategy<v2::RowFilter>,
    depth: u32,
    filters: u32,
) -> impl Strategy<Value = v2::RowFilter> {
    leaf.prop_recursive(depth, filters, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 2..5);
        let branch = || prop::option::weighted(0.8, inner.clone().prop_map(Box::new));
        let condition = (inner.clone(), branch(), branch());
        let kind = prop_oneof![
            3 => several().prop_map(|filters| Kind::Chain(Chain { filters })),
            2 => several().prop_map(|filters| Kind::Interleave(Interleave { filters })),
            1 => condition.prop_map(|(predicate, true_filter, false_filter)| {
                let predicate_filter = Some(Box::new(predicate));
                let condition = Condition { predicate_filter, true_filter, false_filter };
                Kind::Condition(Box::new(condition))
            }),
        ];
        kind.prop_map(|kind| v2::RowFilter { filter: Some(kind) })
    })
}

/// Removes what would make a filter invalid: sinks inside conditions, and labels
/// where none are allowed. Returns whether any label is left.
fn repair(filter: &mut v2::RowFilter, in_condition: bool, labels: bool) -> bool {
    let Some(kind) = &mut filter.filter else { return false };
    match kind {
        Kind::Sink(_) if in_condition => *kind = Kind::PassAllFilter(true),
        Kind::ApplyLabelTransformer(_) if !labels => *kind = Kind::PassAllFilter(true),
        Kind::ApplyLabelTransformer(_) => return true,
        Kind::Chain(chain) => {
            let mut labelled = false;
            for stage in &mut chain.filters {
                labelled |= repair(stage, in_condition, labels && !labelled);
            }
            return labelled;
        }
        Kind::Interleave(interleave) => {
            let branches = interleave.filters.iter_mut();
            return branches.fold(false, |any, branch| repair(branch, in_condition, labels) | any);
        }
        Kind::Condition(condition) => {
            let Condition { predicate_filter, true_filter, false_filter } = &mut **condition;
            let parts = [predicate_filter, true_filter, false_filter].into_iter().flatten();
            return parts.fold(false, |any, part| repair(part, true, labels) | any);
        }
        _ => {}
    }
    false
}
