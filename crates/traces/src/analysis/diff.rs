//! Compares two commits. For a trace without a result at a commit, its newest earlier
//! result within the grid is used.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::params::Params;
use crate::store::{Cells, Grid};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Result {
    Digest(crate::Digest),
    Number(f64),
}

/// A trace that differs between the two commits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub params: Params,
    /// `None` if the trace has no result there.
    pub before: Option<Result>,
    pub after: Option<Result>,
}

/// Returns the differences between the newest results of two grids, and the number of
/// equal traces.
pub fn diff(before: &Grid, after: &Grid) -> (Vec<Difference>, usize) {
    let mut both: BTreeMap<&Params, (Option<Result>, Option<Result>)> = BTreeMap::new();
    for trace in &before.traces {
        both.entry(&trace.params).or_default().0 = newest(before, &trace.cells);
    }
    for trace in &after.traces {
        both.entry(&trace.params).or_default().1 = newest(after, &trace.cells);
    }
    let total = both.len();
    let differing: Vec<_> = both
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(params, (before, after))| Difference { params: params.clone(), before, after })
        .collect();
    let same = total - differing.len();
    (differing, same)
}

fn newest(grid: &Grid, cells: &Cells) -> Option<Result> {
    match cells {
        Cells::Digests(cells) => {
            let number = cells.iter().rev().find(|number| **number != 0)?;
            Some(Result::Digest(grid.digests[*number as usize - 1]))
        }
        Cells::Numbers(cells) => {
            cells.iter().rev().find(|number| !number.is_nan()).copied().map(Result::Number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::GridTrace;
    use crate::{CommitIndex, Digest};

    fn grid(traces: &[(&str, &[u32])]) -> Grid {
        let trace = |(id, cells): &(&str, &[u32])| GridTrace {
            params: Params::parse(id).unwrap(),
            cells: Cells::Digests(cells.to_vec()),
        };
        Grid {
            columns: vec![CommitIndex(0), CommitIndex(1)],
            traces: traces.iter().map(trace).collect(),
            digests: vec![Digest([1; 16]), Digest([2; 16])],
            skipped: 0,
        }
    }

    #[test]
    fn changed_new_and_missing_traces_are_reported() {
        let before = grid(&[(",a=1,", &[1, 0]), (",a=2,", &[1, 1]), (",a=3,", &[2, 1])]);
        let after = grid(&[(",a=1,", &[2, 1]), (",a=3,", &[2, 2]), (",a=4,", &[0, 1])]);
        let (found, same) = diff(&before, &after);
        assert_eq!(same, 1);
        let ids: Vec<_> = found.iter().map(|it| it.params.id()).collect();
        assert_eq!(ids, [",a=2,", ",a=3,", ",a=4,"]);
        assert_eq!(found[0].after, None);
        assert_eq!(found[1].before, Some(Result::Digest(Digest([1; 16]))));
        assert_eq!(found[2].before, None);
    }
}
