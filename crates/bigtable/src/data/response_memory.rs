//! The memory that one call holds for rows: what it has read and not yet handed
//! to the transport, and its read buffers. It is charged to a pool of the server
//! before it is used, so that clients that do not consume their streams cannot
//! exhaust the server's memory. Outgoing messages are charged by the server
//! itself.
//!
//! A stream that holds a part of a row may need more memory to finish it. Several
//! such streams could wait for each other; therefore there is one *turn*, whose
//! holder may exceed the pool's limit and so can always finish.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use stele_grpc::Wait;
use stele_grpc::memory::{CallMemory, MemoryPool, Share};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;

static TURN: Semaphore = Semaphore::const_new(1);

/// The memory of one stream. Free until something is charged.
pub struct ResponseMemory {
    call: CallMemory,
    share: Option<Share>,
    turn: Option<Turn>,
    /// The result of a wait.
    granted: Option<Arc<Mutex<Option<Granted>>>>,
}

type Turn = SemaphorePermit<'static>;

struct Granted {
    share: Share,
    turn: Option<Turn>,
}

impl ResponseMemory {
    /// Returns the memory of the call that is being polled.
    pub fn of_call() -> ResponseMemory {
        let call = CallMemory::current();
        ResponseMemory { call, share: None, turn: None, granted: None }
    }

    fn share(&mut self) -> &mut Share {
        self.share.get_or_insert_with(|| self.call.responses().take_now(0))
    }

    /// Tells the server whether a client that does not read holds this memory.
    fn note(&self) {
        let held = self.share.as_ref().is_some_and(|share| share.bytes() > 0);
        self.call.note_buffered(held);
    }

    /// Charges `bytes` in total, or returns what to wait for before calling
    /// again.
    pub fn reserve(&mut self, bytes: usize) -> Option<Wait> {
        if let Some(granted) = self.granted.take().and_then(|granted| lock(&granted).take()) {
            self.share().join(granted.share);
            self.turn = self.turn.take().or(granted.turn);
            self.note();
        }
        let has_turn = self.turn.is_some();
        let share = self.share();
        let missing = (bytes as u64).saturating_sub(share.bytes());
        if missing == 0 || share.try_grow(missing) {
            self.note();
            return None;
        }
        if has_turn {
            share.grow_now(missing);
            return None;
        }
        let (pool, granted) = (self.call.responses(), Arc::<Mutex<_>>::default());
        self.granted = Some(granted.clone());
        Some(Box::pin(async move {
            let grant = wait_for(&pool, missing).await?;
            *lock(&granted) = Some(grant);
            Ok(())
        }))
    }

    /// Waits until `bytes` in total are charged.
    pub async fn wait_for(&mut self, bytes: usize) -> Result<(), Status> {
        while let Some(wait) = self.reserve(bytes) {
            wait.await?;
        }
        Ok(())
    }

    /// Charges `bytes` in total if that is possible without waiting.
    pub fn try_reserve(&mut self, bytes: usize) -> bool {
        let share = self.share();
        let missing = (bytes as u64).saturating_sub(share.bytes());
        missing == 0 || share.try_grow(missing)
    }

    /// Sets the charge to exactly `bytes`, which are in use.
    pub fn set(&mut self, bytes: usize) {
        if bytes == 0 && self.share.is_none() {
            return;
        }
        let share = self.share();
        let (bytes, charged) = (bytes as u64, share.bytes());
        if bytes > charged {
            share.grow_now(bytes - charged);
        } else if bytes < charged {
            share.shrink(charged - bytes);
        }
        self.note();
        if self.turn.is_some() {
            let pool = self.call.responses();
            if pool.used() <= pool.limit() {
                self.turn = None;
            }
        }
    }
}

impl Drop for ResponseMemory {
    fn drop(&mut self) {
        if self.share.is_some() {
            self.call.note_buffered(false);
        }
    }
}

/// Waits for memory or for the turn, whichever comes first.
async fn wait_for(pool: &Arc<MemoryPool>, bytes: u64) -> Result<Granted, Status> {
    let mut taken = pin!(pool.take(bytes));
    let mut turn = pin!(TURN.acquire());
    std::future::poll_fn(|context| {
        if let Poll::Ready(share) = taken.as_mut().poll(context) {
            return Poll::Ready(share.map(|share| Granted { share, turn: None }));
        }
        turn.as_mut().poll(context).map(|turn| {
            let turn = turn.expect("the turn is never closed");
            Ok(Granted { share: pool.take_now(bytes), turn: Some(turn) })
        })
    })
    .await
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stele_grpc::memory::CallPools;

    use super::*;

    /// Returns a pool of `limit` bytes and a constructor for the memory of
    /// streams that share it.
    fn memory(limit: u64) -> (Arc<MemoryPool>, impl Fn() -> ResponseMemory) {
        let pools = CallPools::new(0, 2 * limit, Duration::from_secs(60));
        let pools: &'static CallPools = Box::leak(Box::new(pools));
        let memory = move || CallMemory::new(pools).within(ResponseMemory::of_call);
        (pools.buffered_responses().clone(), memory)
    }

    #[tokio::test]
    async fn memory_is_charged_while_it_is_held() {
        let (pool, memory) = memory(100);
        let mut stream = memory();
        stream.set(0);
        assert!(stream.reserve(80).is_none());
        stream.set(50);
        assert_eq!(pool.used(), 50);
        stream.set(500);
        assert_eq!(pool.used(), 500, "what is in use counts");
        drop(stream);
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn streams_that_fill_the_pool_wait_and_one_has_the_turn() {
        let (pool, memory) = memory(1000);
        let mut streams = [memory(), memory(), memory()];
        for stream in &mut streams[..2] {
            assert!(stream.reserve(500).is_none());
        }
        let wait = streams[0].reserve(2000).expect("the pool is exhausted");
        wait.await.unwrap();
        assert!(streams[0].reserve(2000).is_none(), "it has the turn");
        assert_eq!(pool.used(), 2500);
        let waiting = tokio::spawn(streams[2].reserve(300).expect("the pool is exhausted"));
        while pool.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        streams[0].set(0);
        waiting.await.unwrap().unwrap();
        assert!(streams[2].reserve(300).is_none());
    }
}
