//! Ids for new digests: taken from the counter row in batches, so that it is
//! not written for every digest, and handed out in ascending order.

use std::collections::VecDeque;

use stele_bigtable::client::Rule;
use tokio::sync::Mutex;

use super::Store;
use crate::error::{Error, Result};
use crate::row_name;

const FAMILY: &str = "I";
const COLUMN: &[u8] = b"idc";
/// Ids taken at once, at least and at most beyond what is needed now.
const BATCH_MIN: u64 = 256;
const BATCH_MAX: u64 = 1 << 16;

/// Ids that this process has taken and not used. Those left at its end are
/// lost; ids are unique, not without gaps.
#[derive(Default)]
pub struct Pool {
    reserved: Mutex<Reserved>,
}

#[derive(Default)]
struct Reserved {
    ids: VecDeque<u64>,
    batch: u64,
}

impl Store {
    /// So many ids that nobody else will ever get.
    pub(super) async fn reserve_ids(&self, count: usize) -> Result<Vec<u64>> {
        let mut reserved = self.inner.ids.reserved.lock().await;
        let short = count.saturating_sub(reserved.ids.len()) as u64;
        if short > 0 {
            // The more are asked for, the larger the batches.
            reserved.batch = (reserved.batch * 2).clamp(BATCH_MIN, BATCH_MAX);
            let taken = short + reserved.batch;
            let end = self.count_up(taken).await?;
            let start = end.checked_sub(taken).ok_or_else(|| {
                Error::damaged(row_name::COUNTER.as_bytes(), "the counter went backwards")
            })?;
            // Id 0 stands for a missing digest.
            reserved.ids.extend(start.max(1)..end);
        }
        // Only 0 was left out, so at worst one id of the surplus is gone.
        Ok(reserved.ids.drain(..count).collect())
    }

    /// Gives back ids that were certainly not used.
    pub(super) async fn return_ids(&self, ids: impl IntoIterator<Item = u64>) {
        let mut reserved = self.inner.ids.reserved.lock().await;
        reserved.ids.extend(ids);
        reserved.ids.make_contiguous().sort_unstable();
    }

    /// Adds to the counter and gives its new value. An attempt whose outcome
    /// is unclear may be made again: that only leaves a gap.
    async fn count_up(&self, amount: u64) -> Result<u64> {
        let amount = i64::try_from(amount).map_err(|_| Error::invalid("too many ids at once"))?;
        let rule = || [Rule::increment(FAMILY, COLUMN, amount)];
        let row = match self.table().read_modify_write(row_name::COUNTER, rule()).await {
            Err(error) if error.is_retryable() => {
                super::parallel::pause(3).await;
                self.table().read_modify_write(row_name::COUNTER, rule()).await?
            }
            outcome => outcome?,
        };
        let number = row.latest(FAMILY, COLUMN).and_then(|cell| cell.number());
        number
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| Error::damaged(row_name::COUNTER.as_bytes(), "the counter is no number"))
    }
}
