//! Narrows a scan: excludes what the filter would drop, and removes from the
//! filter what is then redundant.

use stele_engine::{RowRange, ScanSpec, TimeRange};

use super::columns::{ColumnSet, Families};
use super::need::{self, Need};
use super::node::Node;
use super::ranges::Ranges;
use super::residual::ResidualFilter;

/// See [`super::Filter::narrow`].
pub fn narrow<'f>(
    root: &Node,
    families: impl IntoIterator<Item = &'f str>,
    spec: &mut ScanSpec,
) -> ResidualFilter {
    assert!(
        spec.versions.is_none() && spec.cells_max.is_none() && spec.rows_max.is_none(),
        "limits count the cells that pass the filter, so they are set after narrowing"
    );
    if matches!(root, Node::PassAll) {
        return ResidualFilter::new(root);
    }
    let families = Families::new(families);
    let Some(scan) = Narrowed::new(root, &families, spec) else {
        spec.rows = vec![RowRange::new("", "")];
        return ResidualFilter::new(&Node::BlockAll);
    };
    let rest = scan.rest(root, &families, true);
    scan.push_down(&families, spec);
    ResidualFilter::new(&without_row_limit(rest, spec))
}

/// In a scan of a single row, turns the limit on cells per row into a limit of
/// the scan.
fn without_row_limit(rest: Node, spec: &mut ScanSpec) -> Node {
    let one_row = matches!(&spec.rows[..], [range] if range.single_row().is_some());
    match rest.stages() {
        [Node::RowLimit(cells), later @ ..] if one_row => {
            spec.cells_max = Some(*cells as usize);
            Node::chain(later.iter().cloned())
        }
        _ => rest,
    }
}

/// The restrictions of a scan.
struct Narrowed {
    /// May exceed the scan's rows if the filter does not restrict rows.
    rows: Ranges,
    columns: ColumnSet,
    times: TimeRange,
    versions: Option<u32>,
}

impl Narrowed {
    /// Returns `None` if nothing is left to scan.
    fn new(root: &Node, families: &Families<'_>, spec: &ScanSpec) -> Option<Narrowed> {
        let need = Need::new(root, families);
        let selected = spec.times.unwrap_or(TimeRange::ALL);
        let times = TimeRange {
            min: selected.min.max(need.times.min),
            max: selected.max.min(need.times.max),
        };
        let columns = families.selected(&spec.columns).intersection(need.columns);
        let mut rows = need::rows(root);
        if !rows.is_all() && !spec.rows.is_empty() {
            rows = Ranges::from_unsorted(spec.rows.clone()).intersection(&rows);
        }
        if rows.is_empty() || columns.is_empty() || times.is_empty() {
            return None;
        }
        Some(Narrowed { rows, columns, times, versions: need::versions(root, times) })
    }

    fn push_down(self, families: &Families<'_>, spec: &mut ScanSpec) {
        if !self.rows.is_all() {
            spec.rows = self.rows.into_list();
        }
        if !self.columns.is_all() {
            spec.columns = families.columns(self.columns);
        }
        if self.times != TimeRange::ALL {
            spec.times = Some(self.times);
        }
        spec.versions = self.versions;
    }

    /// Returns what remains of a filter whose input is narrowed in this way.
    /// `single` states that no cell reaches it twice.
    fn rest(&self, node: &Node, families: &Families<'_>, single: bool) -> Node {
        let done = match node {
            Node::RowKey(pattern) => pattern
                .literals()
                .is_some_and(|literals| Ranges::points(literals).covers(&self.rows)),
            Node::Qualifier(pattern) => pattern.literals().is_some_and(|literals| {
                families.qualifiers(Ranges::points(literals)).covers(&self.columns)
            }),
            Node::Family(pattern) => families.matching(pattern).covers(&self.columns),
            Node::Column(range) => families.range(range).covers(&self.columns),
            Node::Times(times) => times.min <= self.times.min && times.max >= self.times.max,
            Node::ColumnLimit(cells) => {
                single && self.versions.is_some_and(|versions| versions <= *cells)
            }
            _ => false,
        };
        if done {
            return Node::PassAll;
        }
        let same = |node: &Node| self.rest(node, families, single);
        match node {
            Node::Chain(stages) => {
                let mut single = single;
                Node::chain(stages.iter().map(|stage| {
                    let rest = self.rest(stage, families, single);
                    single &= !stage.copies();
                    rest
                }))
            }
            Node::Interleave(branches) => Node::interleave(branches.iter().map(same)),
            Node::Condition(condition) => Node::condition(
                same(&condition.predicate),
                same(&condition.then),
                same(&condition.otherwise),
            ),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stele_engine::{Columns, FamilyColumns};

    use super::super::node::ColumnRange;
    use super::*;
    use stele_re2::Pattern;

    fn pattern(regex: &str) -> Pattern {
        Pattern::new(regex.as_bytes()).unwrap()
    }

    fn family(regex: &str) -> Node {
        Node::Family(pattern(regex))
    }

    fn qualifier(regex: &str) -> Node {
        Node::Qualifier(pattern(regex))
    }

    fn times(min: i64, max: i64) -> Node {
        Node::Times(TimeRange { min, max })
    }

    fn narrowed(node: &Node) -> (ScanSpec, ResidualFilter) {
        let mut spec = ScanSpec::default();
        let residual = narrow(node, ["a", "b", "c"], &mut spec);
        (spec, residual)
    }

    #[test]
    fn the_usual_filters_leave_nothing_to_do() {
        let column = ColumnRange { family: Bytes::from("b"), qualifiers: RowRange::new("k", "p") };
        let filter = Node::chain([
            Node::RowKey(pattern("x|y")),
            family("[ab]"),
            Node::Column(column),
            times(5, 10),
            Node::ColumnLimit(2),
            times(6, i64::MAX),
            qualifier("m|n|z"),
            Node::ColumnLimit(3),
        ]);
        let (spec, residual) = narrowed(&filter);
        assert!(residual.passes_all());
        assert_eq!(spec.rows, [RowRange::row(b"x"), RowRange::row(b"y")]);
        let qualifiers = Some(vec![RowRange::row(b"m"), RowRange::row(b"n")]);
        let expected = FamilyColumns { family: b"b".to_vec(), qualifiers };
        assert_eq!(spec.columns, Columns::Families(vec![expected]));
        assert_eq!(spec.times, Some(TimeRange { min: 6, max: 10 }));
        assert_eq!((spec.versions, spec.cells_max), (Some(2), None));
    }

    #[test]
    fn newer_timestamps_are_not_left_out_before_a_limit_of_versions() {
        let (spec, residual) = narrowed(&Node::chain([Node::ColumnLimit(1), times(5, 10)]));
        assert_eq!(spec.times, Some(TimeRange { min: 5, max: i64::MAX }));
        assert_eq!(spec.versions, Some(1));
        assert!(!residual.passes_all());
        let (spec, residual) = narrowed(&Node::chain([times(5, 10), Node::ColumnLimit(1)]));
        assert_eq!(spec.times, Some(TimeRange { min: 5, max: 10 }));
        assert_eq!(spec.versions, Some(1));
        assert!(residual.passes_all());
    }

    #[test]
    fn a_limit_of_versions_stays_behind_what_looks_at_values() {
        let (spec, residual) =
            narrowed(&Node::chain([Node::Value(pattern("v")), Node::ColumnLimit(1)]));
        assert_eq!(spec.versions, None);
        assert!(!residual.passes_all());
        let (spec, _) = narrowed(&Node::chain([Node::ColumnLimit(4), Node::Value(pattern("v"))]));
        assert_eq!(spec.versions, Some(4));
    }

    #[test]
    fn nothing_but_rows_is_left_out_before_a_limit_of_the_row() {
        let later = [family("a"), times(1, 2), Node::RowKey(pattern("p.*"))];
        for first in [Node::RowLimit(3), Node::RowOffset(1)] {
            let (spec, _) = narrowed(&Node::chain([first].into_iter().chain(later.clone())));
            assert_eq!((spec.columns, spec.times), (Columns::All, None));
            assert_eq!(spec.rows, [RowRange::prefix(b"p")]);
        }
        let (spec, _) = narrowed(&Node::chain([family("a"), Node::RowLimit(3)]));
        assert_eq!(spec.columns, Columns::Families(vec![FamilyColumns::all("a")]));
        assert_eq!(spec.versions, Some(3));
    }

    #[test]
    fn an_interleave_needs_what_any_of_its_filters_needs() {
        let filter = Node::interleave([
            Node::chain([family("a"), times(1, 2), Node::ColumnLimit(1)]),
            Node::chain([family("c"), times(4, 9), Node::ColumnLimit(3)]),
        ]);
        let (spec, residual) = narrowed(&filter);
        let families = vec![FamilyColumns::all("a"), FamilyColumns::all("c")];
        assert_eq!(spec.columns, Columns::Families(families));
        assert_eq!(spec.times, Some(TimeRange { min: 1, max: 9 }));
        assert_eq!(spec.versions, None);
        assert!(!residual.passes_all());
        let sunk = Node::chain([Node::interleave([Node::Sink, Node::PassAll]), family("a")]);
        let (spec, _) = narrowed(&sunk);
        assert_eq!(spec.columns, Columns::All);
    }

    #[test]
    fn what_nothing_can_pass_is_not_scanned() {
        let impossible = [
            Node::BlockAll,
            family("nowhere"),
            Node::chain([family("a"), family("b")]),
            Node::chain([times(1, 2), times(3, 4)]),
            Node::chain([Node::RowKey(pattern("x")), Node::RowKey(pattern("y"))]),
            Node::interleave(
                [times(2, 1), qualifier("a").clone()]
                    .map(|node| Node::chain([node, qualifier("b"), qualifier("c")])),
            ),
        ];
        for filter in impossible {
            let (spec, residual) = narrowed(&filter);
            assert!(residual.blocks_all(), "{filter:?}");
            assert!(spec.rows.iter().all(RowRange::is_empty) && !spec.rows.is_empty());
        }
    }

    #[test]
    fn a_limit_of_the_row_is_one_of_the_scan_if_that_is_of_one_row() {
        let filter = Node::chain([family("a"), Node::RowLimit(2)]);
        let mut spec = ScanSpec::row(b"r");
        assert!(narrow(&filter, ["a", "b"], &mut spec).passes_all());
        assert_eq!(spec.cells_max, Some(2));
        let filter = Node::chain([Node::Value(pattern("v")), Node::RowLimit(2)]);
        let mut spec = ScanSpec::row(b"r");
        assert!(!narrow(&filter, ["a", "b"], &mut spec).passes_all());
        assert_eq!(spec.cells_max, None);
    }

    #[test]
    fn a_scan_is_narrowed_within_the_requested_rows() {
        let mut spec = ScanSpec {
            rows: vec![RowRange::new("a", "c"), RowRange::new("p", "pz")],
            columns: Columns::Families(vec![FamilyColumns::all("a"), FamilyColumns::all("b")]),
            times: Some(TimeRange { min: 3, max: 8 }),
            ..ScanSpec::default()
        };
        let filter = Node::chain([Node::RowKey(pattern("p.*")), family("b|c"), times(5, 20)]);
        let residual = narrow(&filter, ["a", "b", "c"], &mut spec);
        assert_eq!(spec.rows, [RowRange::new("p", "pz")]);
        assert_eq!(spec.columns, Columns::Families(vec![FamilyColumns::all("b")]));
        assert_eq!(spec.times, Some(TimeRange { min: 5, max: 8 }));
        assert!(!residual.passes_all(), "the row key pattern is left to do");
    }
}
