//! Where numbers changed for good.

use serde::{Serialize, Serializer};
use stele_grpc::Pending;
use stele_grpc::offload::in_place;

use crate::analysis::{self, Step, StepOptions};
use crate::error::Result;
use crate::memory::RequestMemory;
use crate::params::Params;
use crate::query::Query;
use crate::row_name::Kind;
use crate::store::{Cells, Grid, Store, Window};

/// A step of one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceStep {
    #[serde(rename = "id", serialize_with = "as_id")]
    pub params: Params,
    #[serde(flatten)]
    pub step: Step,
}

/// The steps of the traces of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The number of traces that were searched.
    pub traces: usize,
    /// The most significant first.
    pub found: Vec<TraceStep>,
}

fn as_id<S: Serializer>(params: &Params, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&params.id())
}

/// Finds the steps of all traces that match `query`. The grid is charged to `held`.
pub fn steps<'a>(
    store: &'a Store,
    window: Window,
    query: &'a Query,
    options: StepOptions,
    held: &'a mut RequestMemory,
) -> Pending<'a, Result<Steps>> {
    Box::pin(async move {
        let grid = store.grid_within(Kind::Numbers, window, query, held).await?;
        let found = in_place(|| steps_of(&grid, options));
        Ok(Steps { traces: grid.traces.len(), found })
    })
}

fn steps_of(grid: &Grid, options: StepOptions) -> Vec<TraceStep> {
    let mut found = Vec::new();
    for trace in &grid.traces {
        let Cells::Numbers(cells) = &trace.cells else { continue };
        let points = grid.columns.iter().copied().zip(cells.iter().copied());
        let points: Vec<_> = points.filter(|(_, number)| !number.is_nan()).collect();
        let steps = analysis::steps(&points, options);
        found
            .extend(steps.into_iter().map(|step| TraceStep { params: trace.params.clone(), step }));
    }
    found.sort_by(|one, other| other.step.score.total_cmp(&one.step.score));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::GridTrace;
    use crate::tile::CommitIndex;

    #[test]
    fn steps_of_all_traces_are_listed_the_most_significant_first() {
        let trace = |id: &str, runs: [f64; 2]| GridTrace {
            params: Params::parse(id).unwrap(),
            cells: Cells::Numbers((0..20).map(|at| runs[at / 10] + (at % 2) as f64).collect()),
        };
        let grid = Grid {
            columns: (0..20).map(CommitIndex).collect(),
            traces: vec![
                trace(",name=still,", [100.0, 100.0]),
                trace(",name=small,", [100.0, 120.0]),
                trace(",name=large,", [100.0, 200.0]),
            ],
            digests: vec![],
            skipped: 0,
        };
        let found = steps_of(&grid, StepOptions::default());
        let names: Vec<_> = found.iter().map(|it| it.params.get("name").unwrap()).collect();
        assert_eq!(names, ["large", "small"]);
        let listed = serde_json::to_value(&found[0]).unwrap();
        assert_eq!(listed["id"], ",name=large,");
        assert_eq!((&listed["good"], &listed["bad"]), (&9.into(), &10.into()));
    }
}
