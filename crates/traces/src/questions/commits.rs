//! The commits that a question is about, by the names that people give them.

use stele_grpc::Pending;

use crate::error::Result;
use crate::store::{Store, Window};
use crate::tile::CommitIndex;

/// Returns the index of a commit, if one is named.
pub fn commit<'a>(
    store: &'a Store,
    name: Option<&'a str>,
) -> Pending<'a, Result<Option<CommitIndex>>> {
    Box::pin(async move {
        match name {
            None => Ok(None),
            Some(name) => Ok(Some(store.find_commit(name).await?.0)),
        }
    })
}

/// Returns the window from `first` to `last`, or to the newest commit. Without `first`,
/// it is the newest `count` commits with data up to `last`.
pub fn window<'a>(
    store: &'a Store,
    first: Option<&'a str>,
    last: Option<&'a str>,
    count: usize,
) -> Pending<'a, Result<Window>> {
    Box::pin(async move {
        let last = commit(store, last).await?;
        let Some(first) = commit(store, first).await? else {
            return Ok(Window::Dense { count, last });
        };
        let last = match last {
            Some(last) => last,
            None => store.head().await?.map_or(first, |(index, _)| index.max(first)),
        };
        Ok(Window::Range { first, last })
    })
}

/// Returns the range from `first` to `last`; all commits by default.
pub fn range<'a>(
    store: &'a Store,
    first: Option<&'a str>,
    last: Option<&'a str>,
) -> Pending<'a, Result<(CommitIndex, CommitIndex)>> {
    Box::pin(async move {
        let first = commit(store, first).await?.unwrap_or(CommitIndex(0));
        let last = commit(store, last).await?.unwrap_or(CommitIndex(u32::MAX));
        Ok((first, last))
    })
}
