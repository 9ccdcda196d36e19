//! The status of traces: the newest digest of each, and its label. Passed and skipped
//! tests need no triage: they count as positive unless they are labelled otherwise.

use crate::digest::Digest;
use crate::ingest::passing_digests;
use crate::store::{Cells, Grid, Label, Labels};
use crate::tile::CommitIndex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub commit: CommitIndex,
    pub digest: Digest,
    pub label: Label,
}

/// The labels that digests of a test count as.
pub struct Verdicts<'a> {
    labels: &'a Labels,
    passing: [Digest; 2],
}

impl Verdicts<'_> {
    pub fn new(labels: &Labels) -> Verdicts<'_> {
        Verdicts { labels, passing: passing_digests() }
    }

    pub fn label(&self, test: Option<&str>, digest: Digest) -> Label {
        let labels = test.and_then(|test| self.labels.get(test));
        let decided = labels.and_then(|labels| labels.get(&digest)).map(|it| it.label);
        match decided.unwrap_or_default() {
            Label::Untriaged if self.passing.contains(&digest) => Label::Positive,
            label => label,
        }
    }
}

/// Returns the status of each trace of the grid, in order; `None` if it has no digest.
pub fn standings(grid: &Grid, test_key: &str, labels: &Labels) -> Vec<Option<Standing>> {
    let verdicts = Verdicts::new(labels);
    let standing = |cells: &[u32], test: Option<&str>| {
        let (commit, number) =
            grid.columns.iter().zip(cells).rev().find(|(_, number)| **number != 0)?;
        let digest = grid.digests[*number as usize - 1];
        Some(Standing { commit: *commit, digest, label: verdicts.label(test, digest) })
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

    #[test]
    fn passing_is_positive_unless_labelled_otherwise() {
        let [passed, _] = passing_digests();
        let negative = Labelled { label: Label::Negative, ..Labelled::default() };
        let labels = Labels::from([("a".into(), [(passed, negative)].into())]);
        let verdicts = Verdicts::new(&labels);
        assert_eq!(verdicts.label(Some("b"), passed), Label::Positive);
        assert_eq!(verdicts.label(None, passed), Label::Positive);
        assert_eq!(verdicts.label(Some("a"), passed), Label::Negative);
        assert_eq!(verdicts.label(Some("a"), Digest([1; 16])), Label::Untriaged);
    }
}
