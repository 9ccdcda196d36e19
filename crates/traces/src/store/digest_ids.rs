//! Allocates ids for new digests in ascending order. Ids are reserved from the counter
//! row in batches, so that it is not written for every digest.

use std::collections::VecDeque;

use stele_bigtable_client::Rule;
use tokio::sync::Mutex;

use super::Store;
use crate::error::{Error, Result};
use crate::row_name;

const FAMILY: &str = "I";
const COLUMN: &[u8] = b"idc";
/// The minimum number of ids reserved beyond the current need.
const BATCH_MIN: u64 = 256;
const BATCH_MAX: u64 = 1 << 16;

/// Ids that this process has reserved and not used. Unused ids are lost when it exits:
/// ids are unique, but may have gaps.
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
    /// Returns `count` ids that no other process will get.
    pub(super) async fn reserve_ids(&self, count: usize) -> Result<Vec<u64>> {
        let mut reserved = self.inner.ids.reserved.lock().await;
        let short = count.saturating_sub(reserved.ids.len()) as u64;
        if short > 0 {
            // Batches grow with demand.
            reserved.batch = (reserved.batch * 2).clamp(BATCH_MIN, BATCH_MAX);
            let taken = short + reserved.batch;
            let end = self.count_up(taken).await?;
            let start = end.checked_sub(taken).ok_or_else(|| {
                Error::damaged(row_name::COUNTER.as_bytes(), "the counter decreased")
            })?;
            // Id 0 represents a missing digest.
            reserved.ids.extend(start.max(1)..end);
        }
        // Only id 0 is skipped, so at most one id of the surplus is missing.
        Ok(reserved.ids.drain(..count).collect())
    }

    /// Returns ids that were certainly not used.
    pub(super) async fn return_ids(&self, ids: impl IntoIterator<Item = u64>) {
        let mut reserved = self.inner.ids.reserved.lock().await;
        reserved.ids.extend(ids);
        reserved.ids.make_contiguous().sort_unstable();
    }

    /// Adds to the counter and returns its new value. A call with an unknown outcome
    /// may be repeated: that only leaves a gap.
    async fn count_up(&self, amount: u64) -> Result<u64> {
        let amount =
            i64::try_from(amount).map_err(|_| Error::invalid("too many ids in one request"))?;
        let rule = || [Rule::increment(FAMILY, COLUMN, amount)];
        let row = match self.table().read_modify_write(row_name::COUNTER, rule()).await {
            Err(error) if error.is_retryable() => {
                super::parallel::pause(3).await;
                self.table().read_modify_write(row_name::COUNTER, rule()).await?
            }
            outcome => outcome?,
        };
        let number = row.latest(FAMILY, COLUMN).and_then(|cell| cell.number());
        number.and_then(|number| u64::try_from(number).ok()).ok_or_else(|| {
            Error::damaged(row_name::COUNTER.as_bytes(), "the counter is not a number")
        })
    }
}
