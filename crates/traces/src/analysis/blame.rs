//! Finds the commits that may have introduced an untriaged digest.

use std::collections::BTreeMap;

use serde::Serialize;

use super::standing::Verdicts;
use crate::digest::Digest;
use crate::store::{Cells, Grid, Label, Labels};
use crate::tile::CommitIndex;

/// The maximum length of a range of suspects; a longer gap in a trace says little.
const SUSPECTS_MAX: u32 = 10_000;

/// An untriaged digest of a test and the commits that may have introduced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blame {
    pub test: String,
    pub digest: Digest,
    /// Number of traces of the test that have the digest.
    pub traces: usize,
    /// The first of the suspected commits.
    pub first: CommitIndex,
    pub last: CommitIndex,
}

/// Finds the suspects of each untriaged digest of a test. In one trace they are the
/// commits after the last result before the digest first occurs, up to that occurrence.
/// Over all traces of the test, the commits that are suspected most often are returned,
/// none of them later than the earliest occurrence.
pub fn blame(grid: &Grid, test_key: &str, labels: &Labels) -> Vec<Blame> {
    let verdicts = Verdicts::new(labels);
    let mut ranges: BTreeMap<(&str, Digest), Vec<(u32, u32)>> = BTreeMap::new();
    // The trace, counted from 1, that last had each digest of the grid.
    let mut seen_in = vec![0u32; grid.digests.len() + 1];
    for (trace, at) in grid.traces.iter().zip(1..) {
        let Cells::Digests(cells) = &trace.cells else { continue };
        let Some(test) = trace.params.get(test_key) else { continue };
        let mut before: Option<u32> = None;
        for (index, number) in grid.columns.iter().zip(cells) {
            steps::count();
            if *number == 0 {
                continue;
            }
            let is_new = std::mem::replace(&mut seen_in[*number as usize], at) != at;
            let digest = grid.digests[*number as usize - 1];
            if is_new && verdicts.label(Some(test), digest) == Label::Untriaged {
                let first = before.map_or(index.0, |before| before + 1);
                ranges.entry((test, digest)).or_default().push((first, index.0));
            }
            before = Some(index.0);
        }
    }
    let mut found: Vec<Blame> = ranges
        .into_iter()
        .map(|((test, digest), ranges)| {
            let (first, last) = most_suspected(&ranges);
            let (first, last) = (CommitIndex(first), CommitIndex(last));
            Blame { test: test.into(), digest, traces: ranges.len(), first, last }
        })
        .collect();
    // The newest digests first.
    found.sort_by(|one, other| {
        let newest = other.last.cmp(&one.last);
        newest.then_with(|| (&one.test, one.digest).cmp(&(&other.test, other.digest)))
    });
    found
}

/// Returns the suspects from the first commit that is in most ranges.
fn most_suspected(ranges: &[(u32, u32)]) -> (u32, u32) {
    let end = ranges.iter().map(|range| range.1).min().unwrap_or(0);
    // All ranges end there or later, so the ranges that start by then overlap after the
    // last of their starts.
    let begins = ranges.iter().map(|range| {
        steps::count();
        range.0
    });
    let first = begins.filter(|first| *first <= end).max().unwrap_or(end);
    (first.max(end.saturating_sub(SUSPECTS_MAX)), end)
}

/// Counts the steps of an analysis, in tests only.
mod steps {
    #[cfg(test)]
    std::thread_local! {
        pub static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub fn count() {
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
    }
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
    fn a_later_occurrence_does_not_extend_the_suspects() {
        let grid = grid(&[(",name=t,os=a,", "1122"), (",name=t,os=b,", "1----2")]);
        let found = blame(&grid, "name", &positive("t", &[1]));
        assert_eq!((found[0].first.0, found[0].last.0), (12, 12));
    }

    /// Returns the number of steps for a grid whose traces have a new digest at each
    /// commit, the same in all traces.
    fn steps_of(traces: u32, columns: u32) -> u64 {
        let digest = |number: u32| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            Digest(bytes)
        };
        let trace = |at: u32| GridTrace {
            params: Params::parse(&format!(",name=t,os={at},")).unwrap(),
            cells: Cells::Digests((1..=columns).collect()),
        };
        let grid = Grid {
            columns: (0..columns).map(CommitIndex).collect(),
            traces: (0..traces).map(trace).collect(),
            digests: (1..=columns).map(digest).collect(),
            skipped: 0,
        };
        let before = steps::TAKEN.get();
        assert_eq!(blame(&grid, "name", &BTreeMap::new()).len(), columns as usize);
        steps::TAKEN.get() - before
    }

    #[test]
    fn the_number_of_steps_is_proportional_to_the_cells() {
        let (small, wide, tall) = (steps_of(10, 100), steps_of(10, 10_000), steps_of(1_000, 100));
        assert!(small >= 1_000, "{small}");
        assert!(wide <= 110 * small && tall <= 110 * small, "{small} {wide} {tall}");
    }

    #[test]
    fn a_first_result_suspects_its_own_commit_and_triaged_digests_none() {
        let both = grid(&[(",name=t,os=a,", "--3"), (",name=u,os=a,", "1")]);
        let found = blame(&both, "name", &positive("u", &[1]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first.0, found[0].last.0), (12, 12));
        assert!(blame(&grid(&[(",os=a,", "123")]), "name", &BTreeMap::new()).is_empty());
    }
}
