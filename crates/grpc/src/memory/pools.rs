//! The memory shared by all calls of a server: a pool for large requests, a
//! separate budget for small ones, and two pools for responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::MemoryPool;

/// The divisor of the request memory that gives the part reserved for small
/// messages.
const SMALL_PART: u64 = 4;
/// Messages larger than the pool divided by this are served one at a time.
const ALONE_PART: u64 = 4;
/// What the transport holds of a waiting message: its flow-control window.
const UNREAD_BYTES: u64 = 1 << 20;
/// The divisor of the memory for response frames that gives the part which finished
/// responses may hold.
const FINISHED_PART: u64 = 8;
/// The minimum number of messages that may wait, however little memory there is.
pub(super) const WAITERS_MIN: u64 = 64;

/// The memory that all calls of a server share.
pub struct CallPools {
    small_limit: u64,
    small_used: AtomicU64,
    /// For large requests.
    pub(super) requests: Arc<MemoryPool>,
    /// Held by the one request that may exceed the limit.
    pub(super) turn: Arc<Semaphore>,
    /// The number of calls that wait for memory or for the turn.
    pub(super) turn_wanted: AtomicUsize,
    /// The maximum number of waiting messages; their unread bytes take memory
    /// too.
    pub(super) waiters_max: usize,
    responses: Arc<MemoryPool>,
    finished_responses: Arc<MemoryPool>,
    buffered_responses: Arc<MemoryPool>,
}

impl CallPools {
    /// Creates pools of `requests` bytes for requests and `responses` bytes for
    /// responses. A call waits at most `wait` for either.
    pub fn new(requests: u64, responses: u64, wait: Duration) -> CallPools {
        let small_limit = requests / SMALL_PART;
        CallPools {
            small_limit,
            small_used: AtomicU64::new(0),
            requests: MemoryPool::new("a request", requests - small_limit, wait),
            turn: Arc::new(Semaphore::new(1)),
            turn_wanted: AtomicUsize::new(0),
            waiters_max: (2 * requests / UNREAD_BYTES).max(WAITERS_MIN) as usize,
            responses: MemoryPool::new("a response", responses / 2, wait),
            finished_responses: MemoryPool::new("a response", responses / 2 / FINISHED_PART, wait),
            buffered_responses: MemoryPool::new("a response", responses / 2, wait),
        }
    }

    /// Returns the bytes that requests currently hold.
    pub fn requests_used(&self) -> u64 {
        self.requests.used() + self.small_used.load(Ordering::Relaxed)
    }

    pub fn requests_limit(&self) -> u64 {
        self.requests.limit() + self.small_limit
    }

    /// Returns the pool for response frames that the transport has not sent yet.
    pub fn responses(&self) -> &Arc<MemoryPool> {
        &self.responses
    }

    /// Returns the pool for the part of [`CallPools::responses`] that belongs to responses
    /// whose end the transport has as well. Such a response needs no further wake-up, but
    /// nothing resets its stream if the client does not read, so there is a limit to them.
    pub fn finished_responses(&self) -> &Arc<MemoryPool> {
        &self.finished_responses
    }

    /// Returns the pool for what services buffer of responses before it becomes
    /// frames. It is separate so that a stream that buffers much can still send it.
    pub fn buffered_responses(&self) -> &Arc<MemoryPool> {
        &self.buffered_responses
    }

    /// Charges a small message if the memory for small messages has capacity.
    pub(super) fn try_take_small(&self, bytes: u64) -> bool {
        let before = self.small_used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.small_limit;
        if !fits {
            self.small_used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    pub(super) fn return_small(&self, bytes: u64) {
        if bytes > 0 {
            self.small_used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether a message of this size must be served alone among large
    /// ones.
    pub(super) fn is_alone(&self, bytes: u64) -> bool {
        bytes > self.requests.limit() / ALONE_PART
    }
}
