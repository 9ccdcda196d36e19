//! What differs between two commits.

use stele_grpc::Pending;
use stele_grpc::offload::in_place;

use crate::analysis::{self, Difference};
use crate::error::Result;
use crate::memory::RequestMemory;
use crate::query::Query;
use crate::row_name::Kind;
use crate::store::{Store, Window};
use crate::tile::CommitIndex;

/// How many commits back a result still counts for a commit without one, by default.
pub const LOOKBACK: u32 = 50;

/// The traces that differ between two commits, and the number of equal ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Differences {
    pub different: Vec<Difference>,
    pub same: usize,
}

/// Compares the newest results at two commits, each looked for in the last `lookback`
/// commits. The two grids are charged to `held`.
pub fn diff<'a>(
    store: &'a Store,
    commits: [CommitIndex; 2],
    kind: Kind,
    query: &'a Query,
    lookback: u32,
    held: &'a mut [RequestMemory; 2],
) -> Pending<'a, Result<Differences>> {
    Box::pin(async move {
        let [before, after] = commits.map(|last| window(last, lookback));
        let [held_before, held_after] = held;
        let before = store.grid_within(kind, before, query, held_before).await?;
        let after = store.grid_within(kind, after, query, held_after).await?;
        let (different, same) = in_place(|| analysis::diff(&before, &after));
        Ok(Differences { different, same })
    })
}

/// Returns the window of `lookback` commits that ends at a commit.
fn window(last: CommitIndex, lookback: u32) -> Window {
    Window::Range { first: CommitIndex((last.0 + 1).saturating_sub(lookback)), last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_ends_at_its_commit_and_starts_at_the_first_at_the_earliest() {
        let range =
            |first, last| Window::Range { first: CommitIndex(first), last: CommitIndex(last) };
        assert_eq!(window(CommitIndex(99), 50), range(50, 99));
        assert_eq!(window(CommitIndex(7), 1), range(7, 7));
        assert_eq!(window(CommitIndex(3), 50), range(0, 3));
    }
}
