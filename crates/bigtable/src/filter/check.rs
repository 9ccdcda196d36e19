//! Validates a filter as a whole before any row is read. An error contains the
//! path to the invalid field.

use std::cell::RefCell;

use super::leaf;
use super::node::Node;
use crate::error::{Error, Result};
use crate::proto::v2;
use crate::proto::v2::row_filter::{Chain, Condition, Filter as Kind, Interleave};
use stele_re2::PatternBudget;

/// The maximum encoded size of a filter.
pub const FILTER_BYTES_MAX: usize = 20480;
/// The maximum nesting depth of a filter.
pub const FILTER_DEPTH_MAX: usize = 20;

pub fn size(bytes: usize) -> Result<()> {
    if bytes > FILTER_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "Row filter exceeds maximum size of {FILTER_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Validates a filter and simplifies it. Also returns the remaining budget of its
/// patterns; if that deferred any pattern, the filter must not be used.
pub fn filter(filter: &v2::RowFilter, budget: PatternBudget) -> Result<(Node, PatternBudget)> {
    let patterns = RefCell::new(budget);
    let whole = Checker { depth: 0, in_condition: false, patterns: &patterns };
    let node = whole.filter(filter).map_err(Error::Invalid)?.node;
    Ok((node, patterns.into_inner()))
}

/// The error is a message, prefixed with the path to the invalid field.
pub type Checked<T> = Result<T, String>;

/// A valid filter.
struct CheckedFilter {
    node: Node,
    /// Whether it applies a label somewhere.
    labels: bool,
}

/// Checks filters at one depth within the whole.
#[derive(Clone, Copy)]
struct Checker<'p> {
    depth: usize,
    in_condition: bool,
    patterns: &'p Patterns,
}

/// The remaining budget for the patterns of the whole filter.
pub type Patterns = RefCell<PatternBudget>;

impl<'p> Checker<'p> {
    fn inside(self) -> Checker<'p> {
        Checker { depth: self.depth + 1, ..self }
    }

    fn filter(self, filter: &v2::RowFilter) -> Checked<CheckedFilter> {
        if self.depth > FILTER_DEPTH_MAX {
            return Err(format!("Row filter nests deeper than {FILTER_DEPTH_MAX} levels"));
        }
        let Some(kind) = &filter.filter else {
            return Ok(CheckedFilter { node: Node::PassAll, labels: false });
        };
        match kind {
            Kind::Chain(chain) => self.chain(chain).map_err(in_field("chain")),
            Kind::Interleave(fork) => self.interleave(fork).map_err(in_field("interleave")),
            Kind::Condition(condition) => self.condition(condition).map_err(in_field("condition")),
            Kind::Sink(_) if self.in_condition => {
                Err(in_field("sink")("a sink must not be inside a condition".into()))
            }
            _ => {
                let (field, node) = leaf::check(kind, self.patterns);
                let node = node.map_err(in_field(field))?;
                Ok(CheckedFilter { labels: matches!(node, Node::Label(_)), node })
            }
        }
    }

    fn elements(self, filters: &[v2::RowFilter]) -> Checked<Vec<CheckedFilter>> {
        if filters.len() < 2 {
            return Err(format!("at least two filters are required, not {}", filters.len()));
        }
        let elements = filters.iter().enumerate().map(|(at, filter)| {
            self.inside()
                .filter(filter)
                .map_err(|error| format!("Error in element #{at} : {error}"))
        });
        elements.collect()
    }

    fn chain(self, chain: &Chain) -> Checked<CheckedFilter> {
        let stages = self.elements(&chain.filters)?;
        // Ensures that no cell ever gets two labels.
        if stages.iter().filter(|stage| stage.labels).count() > 1 {
            return Err("at most one filter may contain an apply_label_transformer".into());
        }
        let labels = stages.iter().any(|stage| stage.labels);
        Ok(CheckedFilter { node: Node::chain(stages.into_iter().map(|stage| stage.node)), labels })
    }

    fn interleave(self, interleave: &Interleave) -> Checked<CheckedFilter> {
        let branches = self.elements(&interleave.filters)?;
        let labels = branches.iter().any(|branch| branch.labels);
        Ok(CheckedFilter {
            node: Node::interleave(branches.into_iter().map(|branch| branch.node)),
            labels,
        })
    }

    fn condition(self, condition: &Condition) -> Checked<CheckedFilter> {
        let inside = Checker { in_condition: true, ..self.inside() };
        let branch = |field, filter: &Option<Box<v2::RowFilter>>| match filter {
            Some(filter) => inside.filter(filter).map_err(in_field(field)),
            None => Ok(CheckedFilter { node: Node::BlockAll, labels: false }),
        };
        if condition.predicate_filter.is_none() {
            return Err(in_field("predicate_filter")("a predicate is required".into()));
        }
        let predicate = branch("predicate_filter", &condition.predicate_filter)?;
        let then = branch("true_filter", &condition.true_filter)?;
        let otherwise = branch("false_filter", &condition.false_filter)?;
        Ok(CheckedFilter {
            labels: predicate.labels || then.labels || otherwise.labels,
            node: Node::condition(predicate.node, then.node, otherwise.node),
        })
    }
}

fn in_field(field: &str) -> impl Fn(String) -> String {
    move |error| format!("Error in field '{field}' : {error}")
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::messages::*;
    use super::*;

    fn columns(start: &'static str, end: &'static str) -> Kind {
        use v2::column_range::{EndQualifier, StartQualifier};
        Kind::ColumnRangeFilter(v2::ColumnRange {
            family_name: "f".into(),
            start_qualifier: Some(StartQualifier::StartQualifierOpen(start.into())),
            end_qualifier: Some(EndQualifier::EndQualifierClosed(end.into())),
        })
    }

    fn values(start: &'static str, end: &'static str) -> Kind {
        use v2::value_range::{EndValue, StartValue};
        Kind::ValueRangeFilter(v2::ValueRange {
            start_value: Some(StartValue::StartValueClosed(start.into())),
            end_value: Some(EndValue::EndValueOpen(end.into())),
        })
    }

    fn bitmask(mask: &'static [u8]) -> Kind {
        Kind::ValueBitmaskFilter(v2::ValueBitmask { mask: mask.into() })
    }

    #[test]
    fn each_wrong_filter_is_refused_with_the_name_of_its_field() {
        let invalid = [
            (Kind::Sink(false), "'sink' : argument must be true"),
            (Kind::PassAllFilter(false), "'pass_all_filter' : argument must be true"),
            (Kind::BlockAllFilter(false), "'block_all_filter' : argument must be true"),
            (Kind::StripValueTransformer(false), "'strip_value_transformer' : argument must be"),
            (Kind::RowKeyRegexFilter("".into()), "'row_key_regex_filter' : argument must not be"),
            (Kind::RowKeyRegexFilter("(".into()), "'row_key_regex_filter' : "),
            (Kind::RowSampleFilter(0.0), "'row_sample_filter' : argument must be strictly"),
            (Kind::RowSampleFilter(1.0), "'row_sample_filter' : argument must be strictly"),
            (Kind::RowSampleFilter(f64::NAN), "'row_sample_filter' : argument must be strictly"),
            (Kind::FamilyNameRegexFilter("a:b".into()), "'family_name_regex_filter' : argument"),
            (Kind::FamilyNameRegexFilter("[".into()), "'family_name_regex_filter' : "),
            (Kind::ColumnQualifierRegexFilter("*".into()), "'column_qualifier_regex_filter' : "),
            (Kind::ValueRegexFilter("\\".into()), "'value_regex_filter' : "),
            (columns("b", "a"), "'column_range_filter' : start_qualifier must not be after"),
            (values("b", "a"), "'value_range_filter' : start_value must not be after"),
            (bitmask(b""), "'value_bitmask_filter' : a mask is required"),
            (Kind::CellsPerRowOffsetFilter(-1), "'cells_per_row_offset_filter' : argument must"),
            (
                Kind::CellsPerRowLimitFilter(0),
                "'cells_per_row_limit_filter' : argument must be > 0",
            ),
            (Kind::CellsPerRowLimitFilter(-3), "argument must be > 0"),
            (Kind::CellsPerColumnLimitFilter(0), "'cells_per_column_limit_filter' : argument must"),
            (label(""), "'apply_label_transformer' : invalid label ''"),
            (
                label("sixteen-letters-"),
                "'apply_label_transformer' : invalid label 'sixteen-letters-'",
            ),
            (label("Big"), "'apply_label_transformer' : invalid label 'Big'"),
            (label("a_b"), "'apply_label_transformer' : invalid label 'a_b'"),
            (chain([]), "'chain' : at least two filters are required, not 0"),
            (chain([PASS]), "'chain' : at least two filters are required, not 1"),
            (interleave([PASS]), "'interleave' : at least two filters are required, not 1"),
            (condition(None, Some(PASS), None), "'condition' : Error in field 'predicate_filter'"),
            (condition(Some(SINK), None, None), "'sink' : a sink must not be inside"),
            (condition(Some(PASS), Some(chain([PASS, SINK])), None), "'sink' : a sink must not"),
            (condition(Some(PASS), None, Some(SINK)), "'false_filter' : Error in field 'sink'"),
            (chain([label("a"), label("b")]), "at most one filter may contain an apply_label"),
            (
                chain([
                    label("a"),
                    PASS,
                    interleave([PASS, condition(Some(label("b")), None, None)]),
                ]),
                "at most one filter may contain an apply_label",
            ),
            (
                interleave([PASS, chain([PASS, Kind::CellsPerRowLimitFilter(0)])]),
                "Error in field 'interleave' : Error in element #1 : Error in field 'chain' : \
                 Error in element #1 : Error in field 'cells_per_row_limit_filter' : \
                 argument must be > 0",
            ),
        ];
        for (kind, expected) in invalid {
            let filter = row_filter(kind);
            let error = Filter::compile(Some(&filter)).expect_err(expected);
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert!(error.to_string().starts_with("Error in field '"), "{error}");
        }
    }

    #[test]
    fn what_looks_odd_but_is_allowed_is_accepted() {
        let valid = [
            Kind::CellsPerRowOffsetFilter(0),
            Kind::ColumnQualifierRegexFilter("".into()),
            Kind::ValueRegexFilter("".into()),
            Kind::FamilyNameRegexFilter("".into()),
            columns("a", "a"),
            values("a", "a"),
            Kind::TimestampRangeFilter(v2::TimestampRange {
                start_timestamp_micros: 7,
                end_timestamp_micros: 3,
            }),
            condition(Some(PASS), None, None),
            interleave([label("a"), label("b")]),
            label("0-abcdefghijklm"),
            bitmask(b"\0"),
        ];
        for kind in valid {
            let filter = row_filter(kind);
            assert!(Filter::compile(Some(&filter)).is_ok(), "{filter:?}");
        }
    }

    #[test]
    fn no_filter_and_one_of_no_kind_pass_everything() {
        assert!(Filter::compile(None).unwrap().passes_all());
        assert!(Filter::compile(Some(&v2::RowFilter::default())).unwrap().passes_all());
        let unset = Kind::Chain(Chain { filters: vec![v2::RowFilter::default(); 3] });
        assert!(Filter::compile(Some(&row_filter(unset))).unwrap().passes_all());
    }

    #[test]
    fn size_and_depth_are_limited() {
        let nested = |levels| {
            (0..levels).fold(PASS, |inner, _| chain([inner, Kind::StripValueTransformer(true)]))
        };
        assert!(Filter::compile(Some(&row_filter(nested(20)))).is_ok());
        let error = Filter::compile(Some(&row_filter(nested(21)))).unwrap_err();
        assert!(error.to_string().ends_with("Row filter nests deeper than 20 levels"));

        let regex = |length: usize| row_filter(Kind::ValueRegexFilter(vec![b'a'; length].into()));
        assert!(Filter::compile(Some(&regex(20480 - 4))).is_ok());
        let error = Filter::compile(Some(&regex(20480 - 3))).unwrap_err();
        assert_eq!(error.to_string(), "Row filter exceeds maximum size of 20480 bytes");
    }
}
