//! A scan, each of whose batches is an answer.

use stele_engine::world::Miss;
use stele_engine::{BatchEnd, BatchLimits, CellView, EntryPlace, Flow, Result};

use crate::answer::Answer;

/// An open scan. Between batches it holds nothing of the table, so the rows of one
/// batch may no longer be served when the next one is read.
pub struct Scan(stele_engine::Scan);

impl Scan {
    pub(super) fn new(scan: stele_engine::Scan) -> Scan {
        Scan(scan)
    }

    /// Passes the next cells to `sink`, which may return a [`Flow`]. A batch that
    /// reaches its work limit may end without a cell although the scan is not done. So may
    /// one that misses: call `fetched` after each.
    #[inline]
    pub fn next_batch<S, F>(&mut self, limits: BatchLimits, sink: &mut S) -> Answer<BatchEnd>
    where
        S: FnMut(&CellView<'_>) -> F + ?Sized,
        F: Into<Flow>,
    {
        Answer::new(self.0.next_batch(limits, sink))
    }

    /// Like `next_batch`, but also passes the place of the first cell of each row, if
    /// it has one; the place is valid at the batch's txn.
    #[inline]
    pub fn next_placed_batch<F: Into<Flow>>(
        &mut self,
        limits: BatchLimits,
        sink: impl FnMut(&CellView<'_>, Option<EntryPlace>) -> F,
    ) -> Answer<BatchEnd> {
        Answer::new(self.0.next_placed_batch(limits, sink))
    }

    /// Waits, on any executor, for the bytes that the last batch missed, if it did. To be
    /// called before the next one. Fails if they cannot be fetched.
    pub fn fetched(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let miss = self.0.miss().cloned();
        async move {
            match miss {
                Some(miss) => miss.fetched().await,
                None => Ok(()),
            }
        }
    }

    /// Like `fetched`, blocking this thread.
    pub fn wait_fetched(&self) -> Result<()> {
        self.0.miss().map_or(Ok(()), Miss::wait)
    }

    /// Returns what the last batch missed, if that ended it.
    pub fn miss(&self) -> Option<&Miss> {
        self.0.miss()
    }

    /// Whether the last batch ended inside a row, which may continue.
    pub fn mid_row(&self) -> bool {
        self.0.mid_row()
    }

    /// Returns the last completed row: this row and all before it, in scan direction,
    /// are done.
    pub fn completed_row(&self) -> Option<&[u8]> {
        self.0.completed_row()
    }
}
