//! A budget of bytes. Taking from it without contention costs one atomic
//! operation; callers that find it exhausted wait in order of arrival.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

/// The delay after which a refused client should retry.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of callers that wait for one pool; more are refused at
/// once.
const WAITERS_MAX: usize = 4096;

/// A budget of bytes shared by many owners.
pub struct MemoryPool {
    /// The purpose of the memory, for error messages.
    what: &'static str,
    limit: u64,
    wait: Duration,
    used: AtomicU64,
    /// The length of `queue`, readable without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Waiter>>,
}

struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<Share>,
}

/// The part of a pool that one owner holds; returned on drop.
pub struct Share {
    pool: Arc<MemoryPool>,
    bytes: u64,
}

impl MemoryPool {
    /// Creates a pool of `limit` bytes in which callers wait for at most `wait`.
    pub fn new(what: &'static str, limit: u64, wait: Duration) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            what,
            limit,
            wait,
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        })
    }

    /// Returns the bytes currently held. This exceeds the limit if a caller was
    /// admitted beyond it.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of callers that wait for memory of this pool.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Takes `bytes` if they are free and no caller waits.
    pub fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        self.try_add(bytes).then(|| Share { pool: self.clone(), bytes })
    }

    /// Takes `bytes` even if they are not free. For memory that is already in
    /// use, and for owners that must finish before others can.
    pub fn take_now(self: &Arc<Self>, bytes: u64) -> Share {
        // Most shares start empty.
        if bytes > 0 {
            self.used.fetch_add(bytes, Ordering::SeqCst);
        }
        Share { pool: self.clone(), bytes }
    }

    /// Takes `bytes`, waiting in order of arrival. More than the limit is granted
    /// when no other owner holds anything. Fails with RESOURCE_EXHAUSTED after
    /// the pool's waiting time.
    pub async fn take(self: &Arc<Self>, bytes: u64) -> Result<Share, Status> {
        match self.try_take(bytes) {
            Some(share) => Ok(share),
            None => {
                let granted = tokio::time::timeout(self.wait, self.enqueue(bytes)?);
                granted.await.map_err(|_| self.exhausted(bytes))
            }
        }
    }

    /// Enqueues a request for `bytes`; the wait has no timeout.
    pub(super) fn enqueue(self: &Arc<Self>, bytes: u64) -> Result<Queued, Status> {
        let (granted, grant) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.len() >= WAITERS_MAX {
            queue.retain(|waiter| !waiter.granted.is_closed());
            if queue.len() >= WAITERS_MAX {
                self.waiting.store(queue.len(), Ordering::SeqCst);
                return Err(self.exhausted(bytes));
            }
        }
        queue.push_back(Waiter { bytes, granted });
        self.waiting.store(queue.len(), Ordering::SeqCst);
        drop(queue);
        // Memory returned before this waiter was visible has not woken it.
        self.grant();
        Ok(Queued { pool: self.clone(), grant })
    }

    /// Returns the error for `bytes` that did not become available in time.
    pub fn exhausted(&self, bytes: u64) -> Status {
        let message = format!(
            "no memory for {} of {bytes} bytes within {} s: {} of {} bytes are in use; try again \
             later",
            self.what,
            self.wait.as_secs_f32(),
            self.used(),
            self.limit,
        );
        let retry = ErrorDetails::with_retry_info(Some(RETRY_DELAY));
        Status::with_error_details(tonic::Code::ResourceExhausted, message, retry)
    }

    /// Counts `bytes` as used if they are free and no caller waits.
    fn try_add(&self, bytes: u64) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.try_add_ignoring_queue(bytes)
    }

    fn try_add_ignoring_queue(&self, bytes: u64) -> bool {
        let added = self.used.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |used| {
            let after = used.saturating_add(bytes);
            (after <= self.limit || used == 0).then_some(after)
        });
        added.is_ok()
    }

    /// Returns `bytes` and wakes the waiters that can proceed now.
    fn release(self: &Arc<Self>, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.grant();
        }
    }

    /// Grants memory to waiters, first come, first served.
    fn grant(self: &Arc<Self>) {
        // Unclaimed grants are returned only after the queue is unlocked, because
        // returning them locks it again.
        let mut unclaimed = Vec::new();
        let mut queue = self.queue.lock();
        while let Some(first) = queue.front() {
            if first.granted.is_closed() {
                queue.pop_front();
                continue;
            }
            let bytes = first.bytes;
            if !self.try_add_ignoring_queue(bytes) {
                break;
            }
            let Some(first) = queue.pop_front() else { break };
            let share = Share { pool: self.clone(), bytes };
            unclaimed.extend(first.granted.send(share).err());
        }
        self.waiting.store(queue.len(), Ordering::SeqCst);
        drop(queue);
        drop(unclaimed);
    }
}

/// A position in the queue of a pool.
pub(super) struct Queued {
    pool: Arc<MemoryPool>,
    grant: oneshot::Receiver<Share>,
}

impl Future for Queued {
    type Output = Share;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Share> {
        let granted = Pin::new(&mut self.grant).poll(cx);
        granted.map(|share| share.expect("only the receiver's end removes a waiter otherwise"))
    }
}

impl Drop for Queued {
    /// Removes this waiter so that those behind it can proceed.
    fn drop(&mut self) {
        self.grant.close();
        if self.pool.waiting.load(Ordering::SeqCst) > 0 {
            self.pool.grant();
        }
    }
}

impl Share {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more if it is free and no caller waits.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let grown = self.pool.try_add(bytes);
        if grown {
            self.bytes += bytes;
        }
        grown
    }

    /// Takes more even if it is not free.
    pub fn grow_now(&mut self, bytes: u64) {
        self.pool.used.fetch_add(bytes, Ordering::SeqCst);
        self.bytes += bytes;
    }

    /// Takes more, waiting for it as [`MemoryPool::take`] does.
    pub async fn grow(&mut self, bytes: u64) -> Result<(), Status> {
        let more = self.pool.take(bytes).await?;
        self.join(more);
        Ok(())
    }

    /// Adds another share of the same pool to this one.
    pub fn join(&mut self, mut other: Share) {
        debug_assert!(Arc::ptr_eq(&self.pool, &other.pool), "shares of one pool");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns a part of the share, at most all of it.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.pool.release(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn shares_grow_shrink_and_are_returned() {
        let pool = MemoryPool::new("tests", 100, LONG);
        let mut share = pool.try_take(60).unwrap();
        assert!(pool.try_take(41).is_none() && share.try_grow(40) && !share.try_grow(1));
        share.shrink(70);
        assert_eq!((pool.used(), share.bytes()), (30, 30));
        share.join(pool.take_now(500));
        assert_eq!(pool.used(), 530);
        drop(share);
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn more_than_the_limit_is_granted_alone() {
        let pool = MemoryPool::new("tests", 100, LONG);
        let small = pool.try_take(1).unwrap();
        let large = tokio::spawn({
            let pool = pool.clone();
            async move { pool.take(1000).await }
        });
        while pool.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(pool.try_take(1).is_none(), "nobody overtakes");
        drop(small);
        let large = large.await.unwrap().unwrap();
        assert_eq!(pool.used(), 1000);
        assert!(pool.try_take(1).is_none());
        drop(large);
        assert!(pool.try_take(1).is_some());
    }

    #[tokio::test]
    async fn waiters_are_served_in_order_and_one_that_gives_up_blocks_nobody() {
        let pool = MemoryPool::new("tests", 100, LONG);
        let all = pool.try_take(90).unwrap();
        let large = pool.enqueue(100).unwrap();
        let small = pool.enqueue(10).unwrap();
        assert_eq!(pool.waiting(), 2);
        drop(large);
        assert_eq!(small.await.bytes(), 10);
        assert_eq!((pool.waiting(), pool.used()), (0, 90));
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_times_out_and_reports_when_to_retry() {
        let pool = MemoryPool::new("tests", 100, Duration::from_secs(5));
        let all = pool.try_take(100).unwrap();
        let refused = pool.take(7).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(RETRY_DELAY));
        drop(all);
        assert_eq!(pool.take(7).await.unwrap().bytes(), 7);
        assert_eq!((pool.waiting(), pool.used()), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_grant_is_lost_when_many_take_and_return_at_once() {
        let pool = MemoryPool::new("tests", 100, LONG);
        let tasks = (0..8u64).map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..2000 {
                    let share = pool.take(1 + (number * 37 + round * 11) % 100).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(share);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!((pool.waiting(), pool.used()), (0, 0));
    }
}
