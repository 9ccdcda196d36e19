//! How traces stand: the newest digest of each, and what was decided about it.

use crate::digest::Digest;
use crate::store::{Cells, Grid, Label, Labels};
use crate::tile::CommitIndex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub commit: CommitIndex,
    pub digest: Digest,
    pub label: Label,
}

/// One for each trace of the grid, in its order; `None` without a digest.
pub fn standings(grid: &Grid, test_key: &str, labels: &Labels) -> Vec<Option<Standing>> {
    let standing = |cells: &[u32], test: Option<&str>| {
        let (commit, number) =
            grid.columns.iter().zip(cells).rev().find(|(_, number)| **number != 0)?;
        let digest = grid.digests[*number as usize - 1];
        let labelled = test.and_then(|test| labels.get(test)).and_then(|it| it.get(&digest));
        let label = labelled.map_or(Label::Untriaged, |it| it.label);
        Some(Standing { commit: *commit, digest, label })
    };
    let of_trace = |cells: &Cells, test| match cells {
        Cells::Digests(cells) => standing(cells, test),
        Cells::Numbers(_) => None,
    };
    grid.traces.iter().map(|it| of_trace(&it.cells, it.params.get(test_key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::store::{GridTrace, Labelled};

    #[test]
    fn the_newest_digest_counts_with_the_label_of_its_test() {
        let trace = |id: &str, cells: &[u32]| GridTrace {
            params: Params::parse(id).unwrap(),
            cells: Cells::Digests(cells.to_vec()),
        };
        let digests = vec![Digest([1; 16]), Digest([2; 16])];
        let grid = Grid {
            columns: [3, 5, 9].map(CommitIndex).to_vec(),
            traces: vec![
                trace(",name=a,", &[1, 2, 0]),
                trace(",name=b,", &[2, 1, 2]),
                trace(",os=x,", &[0, 0, 2]),
                trace(",name=a,os=x,", &[0, 0, 0]),
            ],
            digests: digests.clone(),
            skipped: 0,
        };
        let negative = Labelled { label: Label::Negative, ..Labelled::default() };
        let labels = Labels::from([("a".into(), [(digests[1], negative)].into())]);
        let stands = |commit, label| {
            Some(Standing { commit: CommitIndex(commit), digest: digests[1], label })
        };
        assert_eq!(
            standings(&grid, "name", &labels),
            [
                stands(5, Label::Negative),
                stands(9, Label::Untriaged),
                stands(9, Label::Untriaged),
                None
            ]
        );
    }
}
