//! The memory budget shared by all stores of a process. Fragments and caches
//! charge it for the memory they hold, commits reserve from it during
//! admission, and the workers consult it to decide when to flush.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// Size of the chunks that fragments recycle through the budget.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Maximum total size of spare chunks.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// A number of bytes shared by all stores of a process.
pub struct MemoryBudget {
    limit: usize,
    state: Mutex<BudgetState>,
}

#[derive(Default)]
struct BudgetState {
    used: usize,
    peak: usize,
    /// Requests waiting for free bytes, oldest first.
    queue: VecDeque<WaitingRequest>,
    /// Tickets of requests granted but not yet collected. Their bytes are
    /// included in `used`.
    granted: BTreeSet<u64>,
    next_ticket: u64,
    /// Chunks of dropped fragments, kept for reuse: memory that is already
    /// mapped costs no page faults. Not included in `used`, but freed when
    /// `used` grows, so that both together stay within the limit.
    spare: Vec<Vec<u8>>,
}

struct WaitingRequest {
    ticket: u64,
    bytes: usize,
    waker: Waker,
}

impl MemoryBudget {
    pub fn new(bytes: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit: bytes, state: Mutex::default() })
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the bytes charged and reserved now. Charges are never refused,
    /// so this can exceed the limit.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }

    /// Returns the peak of the bytes charged and reserved.
    pub fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// Whether any reservation is waiting for free bytes.
    pub fn has_waiters(&self) -> bool {
        !self.state.lock().queue.is_empty()
    }

    /// Charges bytes that are already held.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { budget: Arc::clone(self), bytes }
    }

    /// Reserves the bytes if they are free and no request is waiting.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut state = self.state.lock();
        let free = state.queue.is_empty() && self.fits(&state, bytes);
        free.then(|| self.take(&mut state, bytes))
    }

    /// Returns a future that reserves the bytes once they are free. Requests
    /// are granted in the order of their first poll, so that small requests do
    /// not starve a large one. Dropping the future withdraws the request. A
    /// request above the limit is never granted.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> MemoryReservation {
        MemoryReservation { budget: Arc::clone(self), bytes, ticket: None }
    }

    /// Returns an empty chunk of `CHUNK_BYTES` left by a dropped fragment, if
    /// there is one. The caller must charge it.
    pub fn take_spare_chunk(&self) -> Option<Vec<u8>> {
        self.state.lock().spare.pop()
    }

    /// Keeps a chunk for the next fragment, if there is space. The chunk must
    /// no longer be charged.
    pub fn give_spare_chunk(&self, mut chunk: Vec<u8>) {
        if chunk.capacity() != CHUNK_BYTES {
            return;
        }
        chunk.clear();
        let mut state = self.state.lock();
        let spare_bytes = (state.spare.len() + 1) * CHUNK_BYTES;
        if spare_bytes <= SPARE_BYTES_MAX && self.fits(&state, spare_bytes) {
            state.spare.push(chunk);
        }
    }

    fn fits(&self, state: &BudgetState, bytes: usize) -> bool {
        state.used.checked_add(bytes).is_some_and(|used| used <= self.limit)
    }

    fn take(self: &Arc<Self>, state: &mut BudgetState, bytes: usize) -> Charge {
        self.add_used(state, bytes);
        Charge { budget: Arc::clone(self), bytes }
    }

    fn add(&self, bytes: usize) {
        self.add_used(&mut self.state.lock(), bytes);
    }

    fn add_used(&self, state: &mut BudgetState, bytes: usize) {
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        while !state.spare.is_empty() && !self.fits(state, state.spare.len() * CHUNK_BYTES) {
            state.spare.pop();
        }
    }

    fn release(&self, bytes: usize) {
        let wakers = {
            let mut state = self.state.lock();
            state.used -= bytes;
            self.grant(&mut state)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Grants the oldest requests as far as they fit. Returns the wakers, to be
    /// called without the lock.
    fn grant(&self, state: &mut BudgetState) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(first) = state.queue.front()
            && self.fits(state, first.bytes)
            && let Some(request) = state.queue.pop_front()
        {
            self.add_used(state, request.bytes);
            state.granted.insert(request.ticket);
            wakers.push(request.waker);
        }
        wakers
    }

    /// Withdraws a request that was polled but not collected.
    fn withdraw(&self, ticket: u64, bytes: usize) {
        let wakers = {
            let mut state = self.state.lock();
            if state.granted.remove(&ticket) {
                state.used -= bytes;
            } else {
                state.queue.retain(|request| request.ticket != ticket);
            }
            // The next request may fit now.
            self.grant(&mut state)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A future that waits for bytes of a budget.
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
    /// The position in the queue, from the first poll until the bytes are
    /// taken.
    ticket: Option<u64>,
}

impl Future for MemoryReservation {
    type Output = Charge;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Charge> {
        let this = &mut *self;
        let mut state = this.budget.state.lock();
        let Some(ticket) = this.ticket else {
            if state.queue.is_empty() && this.budget.fits(&state, this.bytes) {
                return Poll::Ready(this.budget.take(&mut state, this.bytes));
            }
            let (ticket, bytes) = (state.next_ticket, this.bytes);
            state.next_ticket += 1;
            state.queue.push_back(WaitingRequest { ticket, bytes, waker: context.waker().clone() });
            this.ticket = Some(ticket);
            return Poll::Pending;
        };
        if state.granted.remove(&ticket) {
            this.ticket = None;
            return Poll::Ready(Charge { budget: this.budget.clone(), bytes: this.bytes });
        }
        let mut queue = state.queue.iter_mut();
        if let Some(request) = queue.find(|request| request.ticket == ticket) {
            request.waker.clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.budget.withdraw(ticket, self.bytes);
        }
    }
}

/// Bytes taken from a budget, returned on drop.
pub struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Charge {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn grow(&mut self, by: usize) {
        self.budget.add(by);
        self.bytes += by;
    }

    pub fn shrink(&mut self, by: usize) {
        assert!(by <= self.bytes, "{by} of {} charged bytes released", self.bytes);
        self.bytes -= by;
        self.budget.release(by);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::block_on;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    /// Waits until `waiting` requests are in the queue.
    fn until_queued(budget: &MemoryBudget, waiting: usize) {
        while budget.state.lock().queue.len() < waiting {
            thread::yield_now();
        }
    }

    #[test]
    fn a_charge_is_given_back_when_dropped() {
        let budget = MemoryBudget::new(100);
        let mut charge = budget.charge(60);
        charge.grow(70);
        assert_eq!((budget.used(), charge.bytes()), (130, 130));
        charge.shrink(100);
        assert_eq!((budget.used(), charge.bytes()), (30, 30));
        drop(charge);
        assert_eq!((budget.used(), budget.peak(), budget.limit()), (0, 130, 100));
    }

    #[test]
    fn more_than_is_free_is_not_given() {
        let budget = MemoryBudget::new(100);
        assert!(budget.try_reserve(101).is_none());
        assert!(budget.try_reserve(usize::MAX).is_none());
        let all = block_on(budget.reserve(100));
        assert!(budget.try_reserve(1).is_none());
        drop(all);
        assert_eq!(budget.try_reserve(1).unwrap().bytes(), 1);
    }

    #[test]
    fn a_large_request_is_not_overtaken_by_small_ones() {
        let budget = MemoryBudget::new(100);
        let held = budget.charge(50);
        let (sender, order) = mpsc::channel();
        thread::scope(|scope| {
            for (place, bytes) in [90, 20].into_iter().enumerate() {
                let (budget, sender) = (&budget, sender.clone());
                scope.spawn(move || {
                    let charge = block_on(budget.reserve(bytes));
                    sender.send((bytes, budget.used() >= bytes)).unwrap();
                    drop(charge);
                });
                until_queued(budget, place + 1);
            }
            assert!(budget.try_reserve(1).is_none(), "one byte would fit, but 90 wait for it");
            drop(held);
        });
        drop(sender);
        assert_eq!(order.recv(), Ok((90, true)));
        assert_eq!(order.recv(), Ok((20, true)));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_dropped_request_leaves_the_queue_to_the_next() {
        let budget = MemoryBudget::new(100);
        let held = budget.charge(50);
        let mut context = Context::from_waker(Waker::noop());
        let mut large = Box::pin(budget.reserve(90));
        let mut small = Box::pin(budget.reserve(10));
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(small.as_mut().poll(&mut context).is_pending());
        drop(large);
        let Poll::Ready(charge) = small.as_mut().poll(&mut context) else {
            panic!("10 bytes are free");
        };
        assert_eq!(charge.bytes(), 10);
        drop((held, charge));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn bytes_that_were_granted_and_never_collected_are_given_back() {
        let budget = MemoryBudget::new(100);
        let held = budget.charge(50);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(budget.reserve(90));
        let mut second = Box::pin(budget.reserve(80));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert_eq!(budget.used(), 90, "granted to the first");
        drop(first);
        assert_eq!(budget.used(), 80, "passed on to the second");
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn concurrent_reservations_never_exceed_the_limit() {
        let budget = MemoryBudget::new(1000);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..8usize {
                let (budget, now, most) = (&budget, &now, &most);
                scope.spawn(move || {
                    for step in 0..200 {
                        let bytes = 1 + (number * 131 + step * 71) % 600;
                        let charge = block_on(budget.reserve(bytes));
                        let held = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(held, Ordering::SeqCst);
                        now.fetch_sub(bytes, Ordering::SeqCst);
                        drop(charge);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 1000);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn spare_chunks_give_way_to_what_is_charged() {
        let budget = MemoryBudget::new(4 * CHUNK_BYTES);
        let mut charge = budget.charge(CHUNK_BYTES);
        for _ in 0..5 {
            budget.give_spare_chunk(Vec::with_capacity(CHUNK_BYTES));
        }
        budget.give_spare_chunk(Vec::new());
        assert_eq!(budget.state.lock().spare.len(), 3);
        assert_eq!(budget.used(), CHUNK_BYTES, "spare chunks are not used");
        charge.grow(CHUNK_BYTES + 1);
        assert_eq!(budget.state.lock().spare.len(), 1);
        assert_eq!(budget.take_spare_chunk().unwrap().capacity(), CHUNK_BYTES);
        assert!(budget.take_spare_chunk().is_none());
    }
}
