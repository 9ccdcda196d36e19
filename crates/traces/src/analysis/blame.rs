//! Which commits may have brought a digest that nobody has looked at yet.

use std::collections::BTreeMap;

use serde::Serialize;

use super::standing::Verdicts;
use crate::digest::Digest;
use crate::store::{Cells, Grid, Label, Labels};
use crate::tile::CommitIndex;

/// Commits a range may span; a trace that was silent for longer tells little.
const SUSPECTS_MAX: u32 = 10_000;

/// An untriaged digest of a test, and who may have brought it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blame {
    pub test: String,
    pub digest: Digest,
    /// Traces of the test that have it.
    pub traces: usize,
    /// The suspects, from the first to the last.
    pub first: CommitIndex,
    pub last: CommitIndex,
}

/// For each trace and each untriaged digest: when it is first seen, the
/// suspects are the commits after the last result before it, up to that one.
/// Over all traces of a test the suspects are counted, none later than the
/// earliest sighting, and the most suspected ones are named.
pub fn blame(grid: &Grid, test_key: &str, labels: &Labels) -> Vec<Blame> {
    let verdicts = Verdicts::new(labels);
    let mut ranges: BTreeMap<(String, Digest), Vec<(u32, u32)>> = BTreeMap::new();
    for trace in &grid.traces {
        let Cells::Digests(cells) = &trace.cells else { continue };
        let Some(test) = trace.params.get(test_key) else { continue };
        let mut before: Option<u32> = None;
        let mut seen: Vec<u32> = Vec::new();
        for (index, number) in grid.columns.iter().zip(cells) {
            if *number == 0 {
                continue;
            }
            let digest = grid.digests[*number as usize - 1];
            let untriaged = verdicts.label(Some(test), digest) == Label::Untriaged;
            if untriaged && !seen.contains(number) {
                seen.push(*number);
                let first = before.map_or(index.0, |before| before + 1);
                ranges.entry((test.into(), digest)).or_default().push((first, index.0));
            }
            before = Some(index.0);
        }
    }
    let mut found: Vec<Blame> = ranges
        .into_iter()
        .map(|((test, digest), ranges)| {
            let (first, last) = most_suspected(&ranges);
            let (first, last) = (CommitIndex(first), CommitIndex(last));
            Blame { test, digest, traces: ranges.len(), first, last }
        })
        .collect();
    // What came last is looked at first.
    found.sort_by(|one, other| {
        let key = |it: &Blame| (std::cmp::Reverse(it.last), it.test.clone(), it.digest);
        key(one).cmp(&key(other))
    });
    found
}

/// The run of suspects that begins with the first of those in most ranges.
fn most_suspected(ranges: &[(u32, u32)]) -> (u32, u32) {
    let end = ranges.iter().map(|range| range.1).min().unwrap_or(0);
    let begin = ranges.iter().map(|range| range.0).filter(|first| *first <= end).min();
    let begin = begin.unwrap_or(end).max(end.saturating_sub(SUSPECTS_MAX));
    let count = |index: u32| ranges.iter().filter(|it| it.0 <= index && index <= it.1).count();
    // Counts only rise towards the end: all ranges reach it or begin later.
    let most = count(end);
    let first = (begin..=end).find(|index| count(*index) == most).unwrap_or(end);
    (first, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Params;
    use crate::store::GridTrace;
    use crate::store::Labelled;

    fn grid(traces: &[(&str, &str)]) -> Grid {
        let cells = |text: &str| {
            text.chars().map(|digit| digit.to_digit(10).unwrap_or(0)).collect::<Vec<_>>()
        };
        let trace = |(id, text): &(&str, &str)| GridTrace {
            params: Params::parse(id).unwrap(),
            cells: Cells::Digests(cells(text)),
        };
        Grid {
            columns: (10..20).map(CommitIndex).collect(),
            traces: traces.iter().map(trace).collect(),
            digests: (1..9).map(|number| Digest([number; 16])).collect(),
            skipped: 0,
        }
    }

    fn positive(test: &str, digests: &[u8]) -> Labels {
        let label = Labelled { label: Label::Positive, ..Labelled::default() };
        let labels = digests.iter().map(|it| (Digest([*it; 16]), label.clone())).collect();
        [(test.to_string(), labels)].into()
    }

    #[test]
    fn suspects_are_the_commits_since_the_last_result() {
        let grid = grid(&[(",name=t,os=a,", "11--2222"), (",name=t,os=b,", "111-2222")]);
        let found = blame(&grid, "name", &positive("t", &[1]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].traces, found[0].digest), (2, Digest([2; 16])));
        assert_eq!((found[0].first.0, found[0].last.0), (13, 14));
    }

    #[test]
    fn nobody_before_the_earliest_sighting_is_accused_by_a_later_one() {
        let grid = grid(&[(",name=t,os=a,", "1122"), (",name=t,os=b,", "1----2")]);
        let found = blame(&grid, "name", &positive("t", &[1]));
        assert_eq!((found[0].first.0, found[0].last.0), (12, 12));
    }

    #[test]
    fn a_first_result_accuses_its_own_commit_and_triaged_digests_nobody() {
        let both = grid(&[(",name=t,os=a,", "--3"), (",name=u,os=a,", "1")]);
        let found = blame(&both, "name", &positive("u", &[1]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first.0, found[0].last.0), (12, 12));
        assert!(blame(&grid(&[(",os=a,", "123")]), "name", &BTreeMap::new()).is_empty());
    }
}
