//! Row filters: which cells of a row a read returns.

use std::ops::Bound;

use bytes::Bytes;

use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::row_filter::Filter as Kind;
use stele_bigtable_proto::v2::{column_range, row_filter, value_range};

/// Selects which cells of a row are returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(v2::RowFilter);

impl Filter {
    fn of(kind: Kind) -> Filter {
        Filter(v2::RowFilter { filter: Some(kind) })
    }

    /// Passes every cell.
    pub fn pass() -> Filter {
        Filter::of(Kind::PassAllFilter(true))
    }

    /// Passes no cell.
    pub fn block() -> Filter {
        Filter::of(Kind::BlockAllFilter(true))
    }

    /// Passes the cells that pass all of these filters, applied in sequence.
    pub fn chain(filters: impl IntoIterator<Item = Filter>) -> Filter {
        match many(filters) {
            Ok(one) => one.unwrap_or_else(Filter::pass),
            Err(filters) => Filter::of(Kind::Chain(row_filter::Chain { filters })),
        }
    }

    /// Passes the cells that pass any of these filters. A cell that passes two is
    /// returned twice.
    pub fn interleave(filters: impl IntoIterator<Item = Filter>) -> Filter {
        match many(filters) {
            Ok(one) => one.unwrap_or_else(Filter::block),
            Err(filters) => Filter::of(Kind::Interleave(row_filter::Interleave { filters })),
        }
    }

    /// Applies the first filter if `predicate` passes any cell of the row,
    /// otherwise the second. `None` passes nothing.
    pub fn condition(predicate: Filter, then: Option<Filter>, otherwise: Option<Filter>) -> Filter {
        Filter::of(Kind::Condition(Box::new(row_filter::Condition {
            predicate_filter: Some(Box::new(predicate.0)),
            true_filter: then.map(|filter| Box::new(filter.0)),
            false_filter: otherwise.map(|filter| Box::new(filter.0)),
        })))
    }

    /// Passes cells directly to the result, bypassing all later filters.
    pub fn sink() -> Filter {
        Filter::of(Kind::Sink(true))
    }

    /// Passes the family with exactly this name.
    pub fn family(name: &str) -> Filter {
        Filter::of(Kind::FamilyNameRegexFilter(
            String::from_utf8(quote(name.as_bytes()))
                .expect("quoting adds only ASCII between whole characters"),
        ))
    }

    /// Passes families whose names match an RE2 pattern.
    pub fn family_regex(pattern: impl Into<String>) -> Filter {
        Filter::of(Kind::FamilyNameRegexFilter(pattern.into()))
    }

    /// Passes columns with exactly this qualifier, in any family.
    pub fn qualifier(qualifier: &[u8]) -> Filter {
        Filter::of(Kind::ColumnQualifierRegexFilter(quote(qualifier).into()))
    }

    /// Passes columns whose qualifiers match an RE2 pattern.
    pub fn qualifier_regex(pattern: impl Into<Bytes>) -> Filter {
        Filter::of(Kind::ColumnQualifierRegexFilter(pattern.into()))
    }

    /// Passes the column with exactly this family and qualifier.
    pub fn column(family: &str, qualifier: &[u8]) -> Filter {
        let qualifier = Bytes::copy_from_slice(qualifier);
        Filter::columns(family, Bound::Included(qualifier.clone()), Bound::Included(qualifier))
    }

    /// Passes the columns of a family between two qualifiers.
    pub fn columns(family: &str, start: Bound<Bytes>, end: Bound<Bytes>) -> Filter {
        use column_range::{EndQualifier, StartQualifier};
        Filter::of(Kind::ColumnRangeFilter(v2::ColumnRange {
            family_name: family.into(),
            start_qualifier: match start {
                Bound::Included(bytes) => Some(StartQualifier::StartQualifierClosed(bytes)),
                Bound::Excluded(bytes) => Some(StartQualifier::StartQualifierOpen(bytes)),
                Bound::Unbounded => None,
            },
            end_qualifier: match end {
                Bound::Included(bytes) => Some(EndQualifier::EndQualifierClosed(bytes)),
                Bound::Excluded(bytes) => Some(EndQualifier::EndQualifierOpen(bytes)),
                Bound::Unbounded => None,
            },
        }))
    }

    /// Passes rows whose keys match an RE2 pattern.
    pub fn row_regex(pattern: impl Into<Bytes>) -> Filter {
        Filter::of(Kind::RowKeyRegexFilter(pattern.into()))
    }

    /// Passes each row with this probability.
    pub fn row_sample(probability: f64) -> Filter {
        Filter::of(Kind::RowSampleFilter(probability))
    }

    /// Passes cells with exactly this value.
    pub fn value(value: &[u8]) -> Filter {
        let value = Bytes::copy_from_slice(value);
        Filter::values(Bound::Included(value.clone()), Bound::Included(value))
    }

    /// Passes cells whose values match an RE2 pattern.
    pub fn value_regex(pattern: impl Into<Bytes>) -> Filter {
        Filter::of(Kind::ValueRegexFilter(pattern.into()))
    }

    /// Passes cells between two values.
    pub fn values(start: Bound<Bytes>, end: Bound<Bytes>) -> Filter {
        use value_range::{EndValue, StartValue};
        Filter::of(Kind::ValueRangeFilter(v2::ValueRange {
            start_value: match start {
                Bound::Included(bytes) => Some(StartValue::StartValueClosed(bytes)),
                Bound::Excluded(bytes) => Some(StartValue::StartValueOpen(bytes)),
                Bound::Unbounded => None,
            },
            end_value: match end {
                Bound::Included(bytes) => Some(EndValue::EndValueClosed(bytes)),
                Bound::Excluded(bytes) => Some(EndValue::EndValueOpen(bytes)),
                Bound::Unbounded => None,
            },
        }))
    }

    /// Passes cells that have the mask's length and all its bits set.
    pub fn value_bitmask(mask: impl Into<Bytes>) -> Filter {
        Filter::of(Kind::ValueBitmaskFilter(v2::ValueBitmask { mask: mask.into() }))
    }

    /// Passes cells from `start` (inclusive) to `end` (exclusive, if any).
    pub fn timestamps(start_micros: i64, end_micros: Option<i64>) -> Filter {
        Filter::of(Kind::TimestampRangeFilter(v2::TimestampRange {
            start_timestamp_micros: start_micros,
            end_timestamp_micros: end_micros.unwrap_or(0),
        }))
    }

    /// Passes the newest `count` versions of each column.
    pub fn versions(count: i32) -> Filter {
        Filter::of(Kind::CellsPerColumnLimitFilter(count))
    }

    /// Passes the newest version of each column.
    pub fn latest() -> Filter {
        Filter::versions(1)
    }

    /// Passes the first `count` cells of each row.
    pub fn cells_per_row(count: i32) -> Filter {
        Filter::of(Kind::CellsPerRowLimitFilter(count))
    }

    /// Skips the first `count` cells of each row.
    pub fn skip_cells(count: i32) -> Filter {
        Filter::of(Kind::CellsPerRowOffsetFilter(count))
    }

    /// Removes the values of cells.
    pub fn strip_values() -> Filter {
        Filter::of(Kind::StripValueTransformer(true))
    }

    /// Applies a label to cells.
    pub fn label(label: impl Into<String>) -> Filter {
        Filter::of(Kind::ApplyLabelTransformer(label.into()))
    }

    /// Wraps a filter message of any kind.
    pub fn from_message(message: v2::RowFilter) -> Filter {
        Filter(message)
    }

    /// Returns the filter as a message.
    pub fn into_message(self) -> v2::RowFilter {
        self.0
    }
}

/// Returns the messages of two or more filters. The API rejects shorter lists, so
/// a single filter is returned as it is.
fn many(
    filters: impl IntoIterator<Item = Filter>,
) -> std::result::Result<Option<Filter>, Vec<v2::RowFilter>> {
    let mut filters: Vec<_> = filters.into_iter().map(|filter| filter.0).collect();
    if filters.len() < 2 { Ok(filters.pop().map(Filter)) } else { Err(filters) }
}

/// Returns a pattern that matches exactly these bytes.
fn quote(bytes: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0 => pattern.extend_from_slice(b"\\x00"),
            b'_' | 0x80.. => pattern.push(*byte),
            plain if plain.is_ascii_alphanumeric() => pattern.push(*plain),
            special => pattern.extend_from_slice(&[b'\\', *special]),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_are_quoted() {
        let Some(Kind::FamilyNameRegexFilter(pattern)) = Filter::family("a.b-1").0.filter else {
            panic!("another kind");
        };
        assert_eq!(pattern, "a\\.b\\-1");
        assert_eq!(quote(b"\0*\xff_z"), b"\\x00\\*\xff_z");
        assert_eq!(quote("gr\u{fc}n".as_bytes()), "gr\u{fc}n".as_bytes());
    }

    #[test]
    fn a_list_of_fewer_than_two_filters_is_simplified() {
        assert_eq!(Filter::chain([]), Filter::pass());
        assert_eq!(Filter::interleave([]), Filter::block());
        assert_eq!(Filter::chain([Filter::latest()]), Filter::latest());
        let two = Filter::chain([Filter::latest(), Filter::strip_values()]).into_message();
        let Some(Kind::Chain(chain)) = two.filter else { panic!("another kind") };
        assert_eq!(chain.filters.len(), 2);
    }
}
