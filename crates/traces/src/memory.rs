//! Memory held by requests: grids while they are read and sent, and bodies while they
//! are received and stored. Each is charged to a pool that all requests of a server
//! share.

use std::sync::Arc;
use std::time::Duration;

use stele_grpc::memory::{MemoryPool, Share};

use crate::error::{Error, Result};

/// How long a request waits for memory that other requests hold.
const WAIT: Duration = Duration::from_secs(30);
/// Memory is charged in steps of this size.
const STEP: u64 = 1 << 20;
/// The minimum size of each pool.
const POOL_MIN: u64 = 32 << 20;

/// The memory pools of a server. Grids and bodies have separate pools, so that slow
/// uploads do not block reads.
pub struct Memory {
    pub grids: Arc<MemoryPool>,
    pub bodies: Arc<MemoryPool>,
}

impl Memory {
    /// Divides `bytes` between grids (two thirds) and bodies (one third).
    pub fn new(bytes: u64) -> Memory {
        let pool = |what, bytes: u64| MemoryPool::new(what, bytes.max(POOL_MIN), WAIT);
        Memory {
            grids: pool("the memory for grids of traces", bytes / 3 * 2),
            bodies: pool("the memory for bodies of results", bytes / 3),
        }
    }
}

/// The memory reserved by one request.
pub struct RequestMemory {
    /// Without a pool, nothing is counted.
    share: Option<Share>,
    limit: u64,
}

impl RequestMemory {
    /// Returns an unlimited reservation, for commands, which run in their own process.
    pub fn uncounted() -> RequestMemory {
        RequestMemory { share: None, limit: u64::MAX }
    }

    pub fn of(pool: &Arc<MemoryPool>) -> RequestMemory {
        RequestMemory { share: Some(pool.take_now(0)), limit: pool.limit() }
    }

    /// Returns the most that one request may reserve.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Increases the reservation to `bytes` in total, waiting for a limited time if
    /// other requests hold the memory.
    pub async fn cover(&mut self, bytes: u64) -> Result<()> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let charged = share.bytes();
        if bytes <= charged {
            return Ok(());
        }
        if bytes > self.limit {
            return Err(Error::TooLarge(format!(
                "the request needs more than the limit of {} bytes of memory: narrow \
                 the query or the window",
                self.limit
            )));
        }
        let more = (bytes - charged).max(STEP).min(self.limit - charged);
        share.grow(more).await.map_err(|status| Error::Busy(status.message().into()))
    }

    /// Decreases the reservation to `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(share) = &mut self.share {
            share.shrink(share.bytes().saturating_sub(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_share_a_pool_and_impossible_requests_are_rejected() {
        let memory = Memory::new(0);
        let mut one = RequestMemory::of(&memory.grids);
        one.cover(POOL_MIN - STEP).await.unwrap();
        let mut other = RequestMemory::of(&memory.grids);
        other.cover(1).await.unwrap();
        let busy = other.cover(2 * STEP).await.unwrap_err();
        assert_eq!((busy.status(), busy.kind()), (503, "busy"), "{busy}");
        let large = other.cover(POOL_MIN + 1).await.unwrap_err();
        assert_eq!(large.status(), 413, "{large}");
        one.shrink_to(0);
        other.cover(2 * STEP).await.unwrap();
        RequestMemory::of(&memory.bodies).cover(POOL_MIN).await.unwrap();
        RequestMemory::uncounted().cover(u64::MAX).await.unwrap();
    }
}
