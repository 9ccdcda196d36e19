//! Before the scan: has the engine leave out what the filter would drop, and
//! takes out of the filter what is thereby done.

use std::sync::Arc;

use stele_engine::world::Random;
use stele_engine::{RowRange, ScanSpec, TimeRange};

use super::columns::{ColumnSet, Families};
use super::evaluator::Evaluator;
use super::need::{self, Need};
use super::node::Node;
use super::program::{Builder, Program};
use super::ranges::Ranges;
use super::stages::Stages;

/// What is left to do for the cells of a scan.
#[derive(Debug)]
pub struct Plan {
    pub(super) work: Work,
    pub(super) labels: Vec<Arc<str>>,
    pub(super) counters: usize,
}

#[derive(Debug)]
pub(super) enum Work {
    PassAll,
    BlockAll,
    /// Each cell is decided when it comes.
    Cells(Program),
    /// The row is held until its end.
    Rows(Stages),
}

impl Plan {
    pub(super) fn new(node: &Node) -> Plan {
        let mut builder = Builder::default();
        let work = match node {
            Node::PassAll => Work::PassAll,
            Node::BlockAll => Work::BlockAll,
            node if node.has_condition() => Work::Rows(Stages::new(node, &mut builder)),
            node => Work::Cells(builder.program(node.stages())),
        };
        Plan { work, labels: builder.labels, counters: builder.counters }
    }

    /// Whether every cell of the scan passes unchanged.
    pub fn passes_all(&self) -> bool {
        matches!(self.work, Work::PassAll)
    }

    /// Whether nothing can come of the scan, so that it need not be made.
    pub fn blocks_all(&self) -> bool {
        matches!(self.work, Work::BlockAll)
    }

    /// Begins the work. Row samples are drawn from `random`.
    pub fn evaluator(self, random: Arc<dyn Random>) -> Evaluator {
        Evaluator::new(self, random)
    }
}

/// See [`super::Filter::narrow`].
pub fn narrow<'f>(
    root: &Node,
    families: impl IntoIterator<Item = &'f str>,
    spec: &mut ScanSpec,
) -> Plan {
    assert!(
        spec.versions.is_none() && spec.cells_max.is_none() && spec.rows_max.is_none(),
        "limits count what the filter lets through, so they are set after narrowing"
    );
    if matches!(root, Node::PassAll) {
        return Plan::new(root);
    }
    let families = Families::new(families);
    let Some(scan) = Narrowed::of(root, &families, spec) else {
        spec.rows = vec![RowRange::new("", "")];
        return Plan::new(&Node::BlockAll);
    };
    let rest = scan.rest(root, &families, true);
    scan.push_down(&families, spec);
    Plan::new(&without_row_limit(rest, spec))
}

/// In a scan of one row the limit of the row's cells is one of the scan's.
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

/// What a scan is narrowed to.
struct Narrowed {
    /// Possibly more than the scan's rows, if the filter does not ask.
    rows: Ranges,
    columns: ColumnSet,
    times: TimeRange,
    versions: Option<u32>,
}

impl Narrowed {
    /// `None` when nothing is left to scan.
    fn of(root: &Node, families: &Families<'_>, spec: &ScanSpec) -> Option<Narrowed> {
        let need = Need::of(root, families);
        let wanted = spec.times.unwrap_or(TimeRange::ALL);
        let times =
            TimeRange { min: wanted.min.max(need.times.min), max: wanted.max.min(need.times.max) };
        let columns = families.wanted(&spec.columns).intersection(need.columns);
        let mut rows = need::rows(root);
        if !rows.is_all() && !spec.rows.is_empty() {
            rows = Ranges::of(spec.rows.clone()).intersection(&rows);
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

    /// What is left of a filter whose input is narrowed so. `single` tells
    /// that no cell comes to it twice.
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
