//! Digests with the labels of their tests, and the commits to blame for untriaged ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stele_grpc::Pending;
use stele_grpc::offload::in_place;

use crate::analysis::{self, Blame};
use crate::error::Result;
use crate::memory::RequestMemory;
use crate::query::Query;
use crate::row_name::Kind;
use crate::store::{Commit, Grid, Labels, Store, Window};
use crate::tile::CommitIndex;

/// Returns the labels of the tests of a grid.
pub fn labels<'a>(store: &'a Store, grid: &'a Grid) -> Pending<'a, Result<Labels>> {
    Box::pin(async move {
        let key = &store.settings().test_key;
        let tests: BTreeSet<&str> =
            grid.traces.iter().filter_map(|trace| trace.params.get(key)).collect();
        store.labels(tests).await
    })
}

/// Returns digests and the labels of their tests. The grid is charged to `held`.
pub fn labelled<'a>(
    store: &'a Store,
    window: Window,
    query: &'a Query,
    held: &'a mut RequestMemory,
) -> Pending<'a, Result<(Grid, Labels)>> {
    Box::pin(async move {
        let grid = store.grid_within(Kind::Digests, window, query, held).await?;
        let labels = labels(store, &grid).await?;
        Ok((grid, labels))
    })
}

/// Returns the untriaged digests and the range of commits that may have introduced each
/// of them, the newest first. The grid is charged to `held`.
pub fn blame<'a>(
    store: &'a Store,
    window: Window,
    query: &'a Query,
    held: &'a mut RequestMemory,
) -> Pending<'a, Result<Vec<Blame>>> {
    Box::pin(async move {
        let (grid, labels) = labelled(store, window, query, held).await?;
        Ok(in_place(|| analysis::blame(&grid, &store.settings().test_key, &labels)))
    })
}

/// Returns the registered commits from the first to the last suspect.
pub fn blamed_commits<'a>(
    store: &'a Store,
    blamed: &'a [Blame],
) -> Pending<'a, Result<BTreeMap<CommitIndex, Arc<Commit>>>> {
    Box::pin(async move {
        let first = blamed.iter().map(|it| it.first).min();
        let last = blamed.iter().map(|it| it.last).max();
        match (first, last) {
            (Some(first), Some(last)) => store.commits(first, last).await,
            _ => Ok(BTreeMap::new()),
        }
    })
}
