//! Finds where a trace changed. The suspects are the commits after the last one with
//! the old result, up to the first one with the new result: commits without a result
//! may have caused the change.

use serde::Serialize;

use crate::tile::CommitIndex;

/// A result that differs from the previous one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change<V> {
    /// The last commit that had the old result.
    pub good: CommitIndex,
    /// The first commit that had the new one.
    pub bad: CommitIndex,
    pub before: V,
    pub after: V,
}

/// The commits that may have broken a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstBad<V> {
    #[serde(flatten)]
    pub change: Change<V>,
    /// Whether the good result occurs again at a later commit of the range: the trace
    /// may be flaky.
    pub came_back: bool,
}

/// Returns all changes of a trace, from the oldest to the newest.
pub fn changes<V: Clone + PartialEq>(points: &[(CommitIndex, V)]) -> Vec<Change<V>> {
    let change = |pair: &[(CommitIndex, V)]| Change {
        good: pair[0].0,
        bad: pair[1].0,
        before: pair[0].1.clone(),
        after: pair[1].1.clone(),
    };
    points.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(change).collect()
}

/// Returns the first change away from the result at `good`, up to `bad`. Without
/// `good`, returns the change that introduced the result at `bad`; without `bad`,
/// searches up to the newest result. Returns `None` if nothing changed.
pub fn first_bad<V: Clone + PartialEq>(
    points: &[(CommitIndex, V)],
    good: Option<CommitIndex>,
    bad: Option<CommitIndex>,
) -> Option<FirstBad<V>> {
    let end = bad.map_or(points.len(), |bad| points.partition_point(|point| point.0 <= bad));
    let points = &points[..end];
    let start = match good {
        // The result at `good`, or the newest one before it.
        Some(good) => points.partition_point(|point| point.0 <= good).checked_sub(1)?,
        None => {
            let newest = &points.last()?.1;
            points.iter().rposition(|point| point.1 != *newest)?
        }
    };
    let wanted = &points[start].1;
    let first = start + 1 + points[start + 1..].iter().position(|point| point.1 != *wanted)?;
    let change = changes(&points[first - 1..=first]).pop()?;
    let came_back = points[first..].iter().any(|point| point.1 == *wanted);
    Some(FirstBad { change, came_back })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `aab-b`: one result per commit, a dash for none.
    fn points(text: &str) -> Vec<(CommitIndex, char)> {
        let all = (0..).map(CommitIndex).zip(text.chars());
        all.filter(|(_, result)| *result != '-').collect()
    }

    fn found(text: &str, good: Option<u32>, bad: Option<u32>) -> Option<(u32, u32, bool)> {
        let found = first_bad(&points(text), good.map(CommitIndex), bad.map(CommitIndex))?;
        Some((found.change.good.0, found.change.bad.0, found.came_back))
    }

    #[test]
    fn the_commit_that_introduced_the_newest_result_is_found() {
        assert_eq!(found("aaabbb", None, None), Some((2, 3, false)));
        assert_eq!(found("aa--bb", None, None), Some((1, 4, false)));
        assert_eq!(found("abcbb", None, None), Some((2, 3, false)));
        assert_eq!(found("abcbb", None, Some(2)), Some((1, 2, false)));
        assert_eq!(found("aaaa", None, None), None);
        assert_eq!(found("", None, None), None);
    }

    #[test]
    fn the_first_change_after_a_good_commit_is_found() {
        assert_eq!(found("aabcb", Some(0), None), Some((1, 2, false)));
        assert_eq!(found("aab--cb", Some(3), None), Some((2, 5, true)));
        assert_eq!(found("aabab", Some(0), None), Some((1, 2, true)));
        assert_eq!(found("aabb", Some(0), Some(1)), None);
        assert_eq!(found("--ab", Some(0), None), None);
        assert_eq!(found("aab", Some(9), None), None);
    }

    #[test]
    fn every_change_is_listed() {
        let all = changes(&points("aab-ba"));
        let found: Vec<_> = all.iter().map(|it| (it.good.0, it.bad.0, it.after)).collect();
        assert_eq!(found, [(1, 2, 'b'), (4, 5, 'a')]);
    }
}
