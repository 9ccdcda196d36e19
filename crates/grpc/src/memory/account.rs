//! What one call holds of the pools: the bytes of its latest request message as
//! they arrive, then the size of the decoded message.
//!
//! Memory is charged as it is used, so a message that was only announced holds
//! none. Several partly received messages could then wait for each other forever;
//! therefore there is one *turn*, whose holder may exceed the limit and so can
//! always finish. The turn is taken by a message that finds the pool exhausted,
//! and by every message larger than a quarter of the pool, so that such messages
//! are served one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::{CallPools, Share};

/// Messages up to this size are charged in full when they begin, to the memory
/// reserved for small messages.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Decoded sizes up to this are not charged.
const DECODED_BYTES_FREE: u64 = 4 << 10;
/// Large messages are charged in increments of this size while they arrive.
pub(super) const STEP_BYTES: u64 = 256 << 10;

/// The charges of one call.
pub(super) struct Account {
    pub pools: &'static CallPools,
    /// Bytes charged to the memory for small messages.
    small: AtomicU64,
    large: Mutex<Large>,
    pub received: AtomicU64,
    /// Set when the response has begun: later messages belong to a stream.
    pub answered: AtomicBool,
    /// Whether the service holds memory of [`CallPools::buffered_responses`].
    pub buffers: AtomicBool,
}

/// What a call holds of the pool for large requests.
#[derive(Default)]
struct Large {
    share: Option<Share>,
    /// The bytes of `share` that are charged for the decoded message.
    decoded: u64,
    /// The bytes charged for the decoded message to the memory for small
    /// messages.
    decoded_small: u64,
    turn: Option<OwnedSemaphorePermit>,
}

impl Account {
    pub fn new(pools: &'static CallPools) -> Account {
        let (small, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let (answered, buffers) = (AtomicBool::new(false), AtomicBool::new(false));
        Account { pools, small, large: Mutex::default(), received, answered, buffers }
    }

    /// Charges the decoded size of the latest message. Returns the bytes to wait
    /// for if that is not possible now.
    pub fn charge_decoded(&self, bytes: u64) -> Option<u64> {
        if bytes <= DECODED_BYTES_FREE {
            return None;
        }
        let mut large = self.large.lock();
        self.release_decoded(&mut large);
        if bytes <= SMALL_BYTES_MAX && self.pools.try_take_small(bytes) {
            self.small.fetch_add(bytes, Ordering::Relaxed);
            large.decoded_small = bytes;
            return None;
        }
        let charged = self.try_add(&mut large, bytes);
        large.decoded = bytes;
        (!charged).then_some(bytes)
    }

    /// Releases what the previous message held, and charges a small message of this
    /// size. Returns whether it was charged.
    pub fn begin_message(&self, bytes: u64) -> bool {
        self.release();
        let charged = bytes <= SMALL_BYTES_MAX && self.pools.try_take_small(bytes);
        if charged {
            self.small.store(bytes, Ordering::Relaxed);
        }
        charged
    }

    /// Charges a large message of `announced` bytes of which `arrived` have arrived.
    /// Returns the bytes to wait for if that is not possible now.
    pub fn charge_arrived(&self, arrived: u64, announced: u64) -> Option<u64> {
        let mut large = self.large.lock();
        let charged = large.share.as_ref().map_or(0, |share| share.bytes() - large.decoded);
        if arrived <= charged {
            return None;
        }
        let wanted = arrived.next_multiple_of(STEP_BYTES).min(announced);
        let missing = wanted.max(arrived) - charged;
        (!self.try_add(&mut large, missing)).then_some(missing)
    }

    pub fn has_turn(&self) -> bool {
        self.large.lock().turn.is_some()
    }

    pub fn release_turn(&self) {
        self.large.lock().turn = None;
    }

    /// Releases the turn if the memory of all calls is within the limit. Does not
    /// wait for another task that changes this account.
    pub fn try_release_turn(&self) {
        let Some(mut large) = self.large.try_lock() else { return };
        if large.turn.is_some() && self.pools.requests.used() <= self.pools.requests.limit() {
            large.turn = None;
        }
    }

    /// Adds to the share if that is possible without waiting.
    fn try_add(&self, large: &mut Large, bytes: u64) -> bool {
        let pool = &self.pools.requests;
        let total = large.share.as_ref().map_or(0, Share::bytes) + bytes;
        if large.turn.is_none() && self.pools.is_alone(total) {
            large.turn = self.pools.turn.clone().try_acquire_owned().ok();
        }
        if large.turn.is_some() {
            add(&mut large.share, pool.take_now(bytes));
            return true;
        }
        if self.pools.is_alone(total) {
            return false;
        }
        match &mut large.share {
            Some(share) => share.try_grow(bytes),
            share => {
                *share = pool.try_take(bytes);
                share.is_some()
            }
        }
    }

    /// Waits for memory or for the turn, whichever comes first.
    pub async fn wait_for(self: Arc<Self>, bytes: u64) -> Result<(), Status> {
        let pools = self.pools;
        let total = self.large.lock().share.as_ref().map_or(0, Share::bytes) + bytes;
        let alone = pools.is_alone(total);
        let waiting = pools.turn_wanted.fetch_add(1, Ordering::Relaxed);
        let _waiter = Waiter(pools);
        if waiting >= pools.waiters_max {
            return Err(pools.requests.exhausted(bytes));
        }
        let free = async {
            match alone {
                true => std::future::pending().await,
                false => match pools.requests.enqueue(bytes) {
                    Ok(queued) => Ok((queued.await, None)),
                    Err(refused) => Err(refused),
                },
            }
        };
        let turn = async {
            let turn = pools.turn.clone().acquire_owned().await.ok();
            Ok((pools.requests.take_now(bytes), turn))
        };
        let either = async {
            tokio::select! { biased; granted = free => granted, granted = turn => granted }
        };
        let granted = tokio::time::timeout(pools.requests.wait(), either).await;
        let (share, turn) = granted.unwrap_or_else(|_| Err(pools.requests.exhausted(bytes)))?;
        let mut large = self.large.lock();
        add(&mut large.share, share);
        if turn.is_some() {
            large.turn = turn;
        }
        Ok(())
    }

    /// Releases what the decoded form of the previous message held.
    fn release_decoded(&self, large: &mut Large) {
        let (decoded, small) = (large.decoded, large.decoded_small);
        (large.decoded, large.decoded_small) = (0, 0);
        if let Some(share) = &mut large.share {
            share.shrink(decoded);
        }
        if small > 0 {
            self.small.fetch_sub(small, Ordering::Relaxed);
            self.pools.return_small(small);
        }
    }

    /// Releases all that the latest message holds.
    fn release(&self) {
        self.pools.return_small(self.small.swap(0, Ordering::Relaxed));
        let large = std::mem::take(&mut *self.large.lock());
        drop(large);
    }
}

fn add(share: &mut Option<Share>, more: Share) {
    match share {
        Some(share) => share.join(more),
        share => *share = Some(more),
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.pools.return_small(*self.small.get_mut());
    }
}

/// Counts a call that waits for memory or for the turn.
struct Waiter(&'static CallPools);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.turn_wanted.fetch_sub(1, Ordering::Relaxed);
    }
}
