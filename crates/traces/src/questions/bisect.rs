//! Which commits may have broken a trace.

use std::ops::RangeInclusive;

use serde::Serialize;
use stele_grpc::Pending;

use super::commits::commit;
use crate::analysis::{self, FirstBad, Step, StepOptions};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::row_name::Kind;
use crate::store::{History, Store};
use crate::tile::CommitIndex;

/// A search for the commit that changed one trace.
#[derive(Clone, Copy, Debug)]
pub struct Bisect<'a> {
    pub params: &'a Params,
    pub kind: Kind,
    /// A commit known to be good; without it, the change that introduced the newest
    /// result is searched.
    pub good: Option<&'a str>,
    /// A commit known to be bad.
    pub bad: Option<&'a str>,
}

/// The change that a bisection found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cause {
    Digest(FirstBad<Digest>),
    Number(Step),
}

impl Bisect<'_> {
    /// Returns the change, or `None` if nothing changed. Fails with
    /// [`Error::NotFound`] if the trace does not exist.
    pub fn run<'a>(&'a self, store: &'a Store) -> Pending<'a, Result<Option<Cause>>> {
        Box::pin(async move {
            let good = commit(store, self.good).await?;
            let bad = commit(store, self.bad).await?;
            let history = store.history(self.params).await?;
            let missing = || Error::NotFound(format!("trace {} not found", self.params));
            let history = history.ok_or_else(missing)?;
            Ok(match self.kind {
                Kind::Digests => {
                    analysis::first_bad(&history.digests, good, bad).map(Cause::Digest)
                }
                Kind::Numbers => last_step(&history, good, bad).map(Cause::Number),
            })
        })
    }
}

/// Returns the last step of the numbers within the range: numbers always differ, so
/// that a mere difference says nothing.
fn last_step(
    history: &History,
    good: Option<CommitIndex>,
    bad: Option<CommitIndex>,
) -> Option<Step> {
    let within = |index: CommitIndex| {
        good.is_none_or(|good| index >= good) && bad.is_none_or(|bad| index <= bad)
    };
    let points: Vec<_> =
        history.numbers.iter().filter(|(index, _)| within(*index)).copied().collect();
    analysis::steps(&points, StepOptions::default()).pop()
}

impl Cause {
    /// The last commit that had the old result.
    pub fn good(&self) -> CommitIndex {
        match self {
            Cause::Digest(found) => found.change.good,
            Cause::Number(step) => step.good,
        }
    }

    /// The first commit that had the new one.
    pub fn bad(&self) -> CommitIndex {
        match self {
            Cause::Digest(found) => found.change.bad,
            Cause::Number(step) => step.bad,
        }
    }

    /// Whether the good result occurs again later, so that the trace may be flaky.
    pub fn came_back(&self) -> bool {
        match self {
            Cause::Digest(found) => found.came_back,
            Cause::Number(_) => false,
        }
    }

    /// Returns the commits that may have caused the change.
    pub fn suspects(&self) -> RangeInclusive<CommitIndex> {
        CommitIndex(self.good().0 + 1)..=self.bad()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: impl IntoIterator<Item = f64>) -> History {
        let numbers = (0..).map(CommitIndex).zip(values).collect();
        History { numbers, ..History::default() }
    }

    #[test]
    fn the_last_step_within_the_range_is_the_cause() {
        let history = numbers([[1.0; 10], [5.0; 10], [9.0; 10]].concat());
        let found = |good: Option<u32>, bad: Option<u32>| {
            let step = last_step(&history, good.map(CommitIndex), bad.map(CommitIndex))?;
            let cause = Cause::Number(step);
            Some((cause.good().0, cause.bad().0, cause.suspects()))
        };
        let only = |index| CommitIndex(index)..=CommitIndex(index);
        assert_eq!(found(None, None), Some((19, 20, only(20))));
        assert_eq!(found(None, Some(15)), Some((9, 10, only(10))));
        assert_eq!(found(Some(12), Some(15)), None);
        assert_eq!(found(Some(20), None), None);
    }
}
