//! Validates the arguments of a filter that contains no other filter.

use std::ops::Bound;
use std::sync::Arc;

use stele_engine::{RowRange, TimeRange};

use super::check::{Checked, Patterns};
use super::node::{ColumnRange, Node};
use crate::proto::v2;
use crate::proto::v2::row_filter::Filter as Kind;
use stele_re2::{Pattern, PatternError};

const LABEL_BYTES_MAX: usize = 15;

/// Validates a filter. Also returns the name of its field.
pub fn check(kind: &Kind, patterns: &Patterns) -> (&'static str, Checked<Node>) {
    let pattern = |regex: &[u8]| {
        let compiled = Pattern::within(regex, &mut patterns.borrow_mut());
        compiled.map_err(|error: PatternError| error.to_string())
    };
    match kind {
        Kind::Chain(_) | Kind::Interleave(_) | Kind::Condition(_) => {
            unreachable!("filters that contain filters are checked by `Checker`")
        }
        Kind::Sink(on) => ("sink", flag(*on, Node::Sink)),
        Kind::PassAllFilter(on) => ("pass_all_filter", flag(*on, Node::PassAll)),
        Kind::BlockAllFilter(on) => ("block_all_filter", flag(*on, Node::BlockAll)),
        Kind::StripValueTransformer(on) => ("strip_value_transformer", flag(*on, Node::Strip)),
        Kind::RowKeyRegexFilter(regex) => ("row_key_regex_filter", row_key(regex, pattern)),
        Kind::RowSampleFilter(fraction) => ("row_sample_filter", sample(*fraction)),
        Kind::FamilyNameRegexFilter(regex) => ("family_name_regex_filter", family(regex, pattern)),
        Kind::ColumnQualifierRegexFilter(regex) => {
            ("column_qualifier_regex_filter", pattern(regex).map(Node::Qualifier))
        }
        Kind::ValueRegexFilter(regex) => ("value_regex_filter", pattern(regex).map(Node::Value)),
        Kind::ColumnRangeFilter(range) => ("column_range_filter", column_range(range)),
        Kind::ValueRangeFilter(range) => ("value_range_filter", value_range(range)),
        Kind::TimestampRangeFilter(range) => ("timestamp_range_filter", Ok(times(range))),
        Kind::ValueBitmaskFilter(bitmask) => ("value_bitmask_filter", mask(bitmask)),
        Kind::CellsPerRowOffsetFilter(cells) => ("cells_per_row_offset_filter", offset(*cells)),
        Kind::CellsPerRowLimitFilter(cells) => {
            ("cells_per_row_limit_filter", limit(*cells).map(Node::RowLimit))
        }
        Kind::CellsPerColumnLimitFilter(cells) => {
            ("cells_per_column_limit_filter", limit(*cells).map(Node::ColumnLimit))
        }
        Kind::ApplyLabelTransformer(name) => ("apply_label_transformer", label(name)),
    }
}

fn flag(on: bool, node: Node) -> Checked<Node> {
    if on { Ok(node) } else { Err("argument must be true".into()) }
}

fn row_key(regex: &[u8], pattern: impl Fn(&[u8]) -> Checked<Pattern>) -> Checked<Node> {
    if regex.is_empty() {
        return Err("argument must not be empty".into());
    }
    pattern(regex).map(Node::RowKey)
}

fn sample(fraction: f64) -> Checked<Node> {
    if fraction > 0.0 && fraction < 1.0 {
        Ok(Node::RowSample(fraction))
    } else {
        Err(format!("argument must be strictly between 0 and 1, not {fraction}"))
    }
}

fn family(regex: &str, pattern: impl Fn(&[u8]) -> Checked<Pattern>) -> Checked<Node> {
    if regex.contains(':') {
        return Err("argument must not contain ':'".into());
    }
    pattern(regex.as_bytes()).map(Node::Family)
}

fn column_range(range: &v2::ColumnRange) -> Checked<Node> {
    use v2::column_range::{EndQualifier, StartQualifier};
    let start = match &range.start_qualifier {
        None => Bound::Unbounded,
        Some(StartQualifier::StartQualifierClosed(start)) => Bound::Included(&start[..]),
        Some(StartQualifier::StartQualifierOpen(start)) => Bound::Excluded(&start[..]),
    };
    let end = match &range.end_qualifier {
        None => Bound::Unbounded,
        Some(EndQualifier::EndQualifierClosed(end)) => Bound::Included(&end[..]),
        Some(EndQualifier::EndQualifierOpen(end)) => Bound::Excluded(&end[..]),
    };
    let qualifiers = between(start, end, "start_qualifier must not be after end_qualifier")?;
    let family = range.family_name.clone().into_bytes().into();
    Ok(Node::Column(ColumnRange { family, qualifiers }))
}

fn value_range(range: &v2::ValueRange) -> Checked<Node> {
    use v2::value_range::{EndValue, StartValue};
    let start = match &range.start_value {
        None => Bound::Unbounded,
        Some(StartValue::StartValueClosed(start)) => Bound::Included(&start[..]),
        Some(StartValue::StartValueOpen(start)) => Bound::Excluded(&start[..]),
    };
    let end = match &range.end_value {
        None => Bound::Unbounded,
        Some(EndValue::EndValueClosed(end)) => Bound::Included(&end[..]),
        Some(EndValue::EndValueOpen(end)) => Bound::Excluded(&end[..]),
    };
    between(start, end, "start_value must not be after end_value").map(Node::ValueRange)
}

fn between(start: Bound<&[u8]>, end: Bound<&[u8]>, disorder: &str) -> Checked<RowRange> {
    if let Bound::Included(first) | Bound::Excluded(first) = start
        && let Bound::Included(last) | Bound::Excluded(last) = end
        && first > last
    {
        return Err(disorder.into());
    }
    Ok(RowRange::bounds(start, end))
}

fn times(range: &v2::TimestampRange) -> Node {
    let end = range.end_timestamp_micros;
    let max = if end == 0 { i64::MAX } else { end.saturating_sub(1) };
    Node::Times(TimeRange { min: range.start_timestamp_micros, max })
}

fn mask(bitmask: &v2::ValueBitmask) -> Checked<Node> {
    if bitmask.mask.is_empty() {
        return Err("a mask is required".into());
    }
    Ok(Node::ValueMask(bitmask.mask.clone()))
}

fn offset(cells: i32) -> Checked<Node> {
    match u32::try_from(cells) {
        Ok(0) => Ok(Node::PassAll),
        Ok(cells) => Ok(Node::RowOffset(cells)),
        Err(_) => Err("argument must be >= 0".into()),
    }
}

fn limit(cells: i32) -> Checked<u32> {
    match u32::try_from(cells) {
        Ok(cells) if cells > 0 => Ok(cells),
        _ => Err("argument must be > 0".into()),
    }
}

fn label(name: &str) -> Checked<Node> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > LABEL_BYTES_MAX || !name.bytes().all(allowed) {
        return Err(format!(
            "invalid label '{}': must match [a-z0-9-]{{1,{LABEL_BYTES_MAX}}}",
            name.escape_debug()
        ));
    }
    Ok(Node::Label(Arc::from(name)))
}
