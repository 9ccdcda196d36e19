//! The handle of a call's memory, which the server creates and passes on to the
//! services.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tonic::Status;

use super::account::Account;
use super::{CallPools, MemoryPool};
use crate::Wait;

/// The memory held by one network call. Clones refer to the same call.
///
/// Without a server in front (calls within the process) nothing is counted.
#[derive(Clone, Default)]
pub struct CallMemory(Option<Arc<Account>>);

thread_local! {
    static CURRENT: RefCell<CallMemory> = const { RefCell::new(CallMemory(None)) };
}

impl CallMemory {
    /// Creates the memory of a new call.
    pub fn new(pools: &'static CallPools) -> CallMemory {
        CallMemory(Some(Arc::new(Account::new(pools))))
    }

    /// Returns the memory of the call that these extensions belong to, or else of
    /// the call that is being polled.
    pub fn of(extensions: &http::Extensions) -> CallMemory {
        extensions.get::<CallMemory>().cloned().unwrap_or_else(CallMemory::current)
    }

    /// Returns the memory of the call that this thread is polling.
    pub fn current() -> CallMemory {
        CURRENT.with_borrow(CallMemory::clone)
    }

    /// Runs `poll` with this as the memory of the current call.
    pub fn within<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        struct Restore<'a>(&'a mut CallMemory);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
            }
        }
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self));
        let _restore = Restore(self);
        poll()
    }

    /// Runs a call within the process, whose memory is not counted.
    pub async fn uncounted<F: Future>(call: F) -> F::Output {
        let mut call = std::pin::pin!(call);
        let poll =
            |cx: &mut std::task::Context<'_>| CallMemory(None).within(|| call.as_mut().poll(cx));
        std::future::poll_fn(poll).await
    }

    /// Returns the pool from which services reserve memory for large responses
    /// that they hold.
    pub fn responses(&self) -> Arc<MemoryPool> {
        static UNLIMITED: std::sync::LazyLock<Arc<MemoryPool>> =
            std::sync::LazyLock::new(|| MemoryPool::new("a response", u64::MAX, Duration::ZERO));
        match &self.0 {
            Some(account) => account.pools.buffered_responses().clone(),
            None => UNLIMITED.clone(),
        }
    }

    /// Notes whether the service holds memory of the pool of `responses` while its
    /// response is sent.
    pub fn note_buffered(&self, buffers: bool) {
        if let Some(account) = &self.0 {
            account.buffers.store(buffers, Ordering::Relaxed);
        }
    }

    /// Returns whether the service holds memory that other responses may wait for.
    pub fn is_buffering(&self) -> bool {
        self.0.as_ref().is_some_and(|account| account.buffers.load(Ordering::Relaxed))
    }

    /// Charges the additional memory that the latest message takes when decoded.
    /// Waits until that much is free, or for the turn.
    pub async fn charge_decoded(&self, bytes: usize) -> Result<(), Status> {
        let Some(account) = &self.0 else { return Ok(()) };
        match account.charge_decoded(bytes as u64) {
            None => Ok(()),
            Some(missing) => Account::wait_for(account.clone(), missing).await,
        }
    }

    /// Charges the decoded size only if that is possible without waiting.
    pub fn try_charge_decoded(&self, bytes: usize) -> Result<(), Status> {
        let Some(account) = &self.0 else { return Ok(()) };
        match account.charge_decoded(bytes as u64) {
            None => Ok(()),
            Some(missing) => Err(account.pools.requests.exhausted(missing)),
        }
    }

    /// Counts bytes of the request as they arrive.
    pub fn note_received(&self, bytes: usize) {
        if let Some(account) = &self.0 {
            account.received.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes that the call has received.
    pub fn received(&self) -> u64 {
        self.0.as_ref().map_or(0, |account| account.received.load(Ordering::Relaxed))
    }

    /// Starts a message of this size and releases what the previous message held.
    /// Returns true if the whole message is charged; otherwise the caller charges
    /// it with [`CallMemory::charge_arrived`].
    pub fn begin_message(&self, bytes: usize) -> bool {
        self.0.as_ref().is_none_or(|account| account.begin_message(bytes as u64))
    }

    /// Charges a large message of `announced` bytes of which `arrived` have
    /// arrived. Returns what to wait for if they cannot be charged immediately.
    pub fn charge_arrived(&self, arrived: usize, announced: usize) -> Option<Wait> {
        let account = self.0.as_ref()?;
        let missing = account.charge_arrived(arrived as u64, announced as u64)?;
        Some(Box::pin(Account::wait_for(account.clone(), missing)))
    }

    /// Returns whether this call keeps others waiting, so that it must not be
    /// slow.
    pub fn delays_others(&self) -> bool {
        self.0.as_ref().is_some_and(|account| {
            account.pools.turn_wanted.load(Ordering::Relaxed) > 0 && account.has_turn()
        })
    }

    /// Releases the turn once the call's memory fits into the pool. Called when
    /// the response begins, which may take much longer than the request.
    pub fn release_turn(&self) {
        if let Some(account) = &self.0 {
            account.answered.store(true, Ordering::Relaxed);
            account.try_release_turn();
        }
    }

    /// Releases the turn when the service of a stream polls for its next message
    /// and none has begun: the client may be silent for hours.
    pub fn between_messages(&self) {
        if let Some(account) = &self.0
            && account.answered.load(Ordering::Relaxed)
        {
            account.release_turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::STEP_BYTES;
    use super::super::pools::WAITERS_MIN;
    use super::*;

    const MIB: usize = 1 << 20;

    /// 4 MiB for large messages, 4/3 MiB for small ones.
    fn pools(wait: Duration) -> &'static CallPools {
        Box::leak(Box::new(CallPools::new(16 * MIB as u64 / 3, MIB as u64, wait)))
    }

    fn long() -> &'static CallPools {
        pools(Duration::from_secs(600))
    }

    #[test]
    fn small_messages_are_counted_whole_and_returned() {
        let pools = long();
        let calls: Vec<_> = (0..21).map(|_| CallMemory::new(pools)).collect();
        assert!(calls.iter().all(|call| call.begin_message(64 << 10)));
        assert_eq!(pools.requests_used(), 21 * (64 << 10));
        let next = CallMemory::new(pools);
        assert!(!next.begin_message(64 << 10), "too many of them count as large ones");
        assert!(next.charge_arrived(64 << 10, 64 << 10).is_none());
        drop((calls, next));
        assert_eq!(pools.requests_used(), 0);
    }

    #[test]
    fn an_announced_message_holds_only_what_has_arrived() {
        let pools = long();
        let call = CallMemory::new(pools);
        assert!(!call.begin_message(256 * MIB));
        assert_eq!(pools.requests_used(), 0);
        assert!(call.charge_arrived(1, 256 * MIB).is_none());
        assert_eq!(pools.requests_used(), STEP_BYTES);
        assert!(call.charge_arrived(300 << 10, 256 * MIB).is_none());
        assert_eq!(pools.requests_used(), 2 * STEP_BYTES);
        assert!(!call.begin_message(100 << 10));
        assert_eq!(pools.requests_used(), 0, "the message before was handled");
        assert!(call.charge_arrived(1, 100 << 10).is_none());
        assert_eq!(pools.requests_used(), 100 << 10);
    }

    #[tokio::test]
    async fn messages_over_a_quarter_of_the_pool_are_served_one_at_a_time() {
        let pools = long();
        let (first, second) = (CallMemory::new(pools), CallMemory::new(pools));
        assert!(first.charge_arrived(100 * MIB, 100 * MIB).is_none());
        assert!(second.charge_arrived(MIB, 2 * MIB).is_some(), "the pool is exhausted");
        let waiting = second.charge_arrived(2 * MIB, 2 * MIB).unwrap();
        let waiting = tokio::spawn(waiting);
        while !first.delays_others() {
            tokio::task::yield_now().await;
        }
        drop(first);
        waiting.await.unwrap().unwrap();
        assert_eq!(pools.requests_used(), 2 * MIB as u64);
        assert!(!second.delays_others());
    }

    #[tokio::test]
    async fn messages_that_fill_the_pool_together_all_arrive_in_the_end() {
        let pools = long();
        let whole = 900 << 10;
        let arriving = |call: CallMemory| async move {
            call.begin_message(whole);
            for arrived in (100 << 10..=whole).step_by(100 << 10) {
                if let Some(waiting) = call.charge_arrived(arrived, whole) {
                    waiting.await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            call.charge_decoded(whole).await.unwrap();
        };
        let calls = (0..32).map(|_| tokio::spawn(arriving(CallMemory::new(pools))));
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!(pools.requests_used(), 0);
    }

    #[tokio::test]
    async fn the_decoded_size_is_charged_until_the_next_message() {
        let pools = long();
        let mut call = CallMemory::new(pools);
        assert!(call.begin_message(1000));
        call.charge_decoded(50 << 10).await.unwrap();
        assert_eq!((pools.requests.used(), pools.requests_used()), (0, 1000 + (50 << 10)));
        let waited = call.within(|| CallMemory::current().try_charge_decoded(500 << 10));
        waited.unwrap();
        assert_eq!(pools.requests_used(), 1000 + (500 << 10));
        assert!(call.begin_message(10));
        assert_eq!(pools.requests_used(), 10);
        assert!(CallMemory::current().0.is_none());
    }

    #[tokio::test]
    async fn a_message_that_finds_neither_memory_nor_the_turn_is_refused() {
        let pools = pools(Duration::ZERO);
        let first = CallMemory::new(pools);
        assert!(first.charge_arrived(5 * MIB, 5 * MIB).is_none());
        let refused = CallMemory::new(pools).charge_decoded(MIB).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        first.release_turn();
        assert!(CallMemory::new(pools).charge_decoded(MIB).await.is_err(), "over the limit");
    }

    #[tokio::test]
    async fn the_number_of_messages_that_wait_is_bounded() {
        let pools = long();
        let first = CallMemory::new(pools);
        assert!(first.charge_arrived(5 * MIB, 5 * MIB).is_none());
        let waiting = || CallMemory::new(pools).charge_arrived(MIB, MIB).unwrap();
        let others: Vec<_> = (0..WAITERS_MIN).map(|_| tokio::spawn(waiting())).collect();
        while pools.turn_wanted.load(Ordering::Relaxed) < others.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting().await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(first);
        for other in others {
            other.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn calls_within_the_process_are_not_counted() {
        let pools = long();
        let call = CallMemory::new(pools);
        let inner = CallMemory::uncounted(async { CallMemory::current().0.is_none() });
        let mut inner = std::pin::pin!(inner);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let polled = call.clone().within(|| inner.as_mut().poll(&mut cx));
        assert_eq!(polled, std::task::Poll::Ready(true));
        CallMemory::default().charge_decoded(1 << 40).await.unwrap();
        assert!(CallMemory::default().responses().try_take(1 << 40).is_some());
    }
}
