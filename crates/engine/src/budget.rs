//! The memory budget: one object shared by all stores of a process. Fragments
//! and caches charge it for what they hold, commits reserve from it before they
//! are let in, and the serialize worker looks at it for something to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// How often a waiter looks at its `cancelled` even when nobody wakes it.
const CANCELLED_POLL: Duration = Duration::from_millis(100);

/// The size of the chunks that fragments pass on through the budget.
pub const CHUNK_BYTES: usize = 1 << 20;
/// How much may lie spare while nobody needs it.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// A number of bytes that all stores of a process share.
pub struct MemoryBudget {
    limit: usize,
    state: Mutex<State>,
    /// Bytes were given back, or the head of the queue has changed.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used: usize,
    peak: usize,
    /// Tickets of those who wait in `reserve`, oldest first.
    queue: VecDeque<u64>,
    next_ticket: u64,
    /// Chunks of dropped fragments, kept for the next: memory that was touched
    /// before costs no page faults. Not in `used`, but they give way to it, so
    /// the limit holds for both together.
    spare: Vec<Vec<u8>>,
}

impl MemoryBudget {
    pub fn new(bytes: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit: bytes, state: Mutex::default(), freed: Condvar::new() })
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes charged and reserved now. Charges are not refused, so this can be
    /// above the limit.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }

    /// The most that was ever charged and reserved.
    pub fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// Takes note of bytes that are held already.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { budget: Arc::clone(self), bytes }
    }

    /// Takes the bytes if they are free and nobody waits for them.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut state = self.state.lock();
        let free = state.queue.is_empty() && self.fits(&state, bytes);
        free.then(|| self.take(&mut state, bytes))
    }

    /// Waits until the bytes are free, in the order of asking, so that a large
    /// request is not overtaken for ever by small ones.
    ///
    /// Gives `None` at once for more than the limit, and when `cancelled` says
    /// so. `cancelled` is asked under the budget's lock and must not use the
    /// budget; whoever makes it true calls [`wake`](Self::wake) afterwards.
    pub fn reserve(self: &Arc<Self>, bytes: usize, cancelled: &dyn Fn() -> bool) -> Option<Charge> {
        if bytes > self.limit {
            return None;
        }
        let mut state = self.state.lock();
        if state.queue.is_empty() && self.fits(&state, bytes) {
            return Some(self.take(&mut state, bytes));
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back(ticket);
        loop {
            let first = state.queue.front() == Some(&ticket);
            let granted = first && self.fits(&state, bytes);
            if granted || cancelled() {
                state.queue.retain(|&waiting| waiting != ticket);
                // The next in line may fit too.
                self.freed.notify_all();
                return granted.then(|| self.take(&mut state, bytes));
            }
            self.freed.wait_for(&mut state, CANCELLED_POLL);
        }
    }

    /// Makes all waiters look at their `cancelled` now.
    pub fn wake(&self) {
        // Under the lock, so that nobody is between looking and waiting.
        let _state = self.state.lock();
        self.freed.notify_all();
    }

    /// An empty chunk of `CHUNK_BYTES`, if a dropped fragment left one. To be
    /// charged by whoever takes it.
    pub fn take_spare_chunk(&self) -> Option<Vec<u8>> {
        self.state.lock().spare.pop()
    }

    /// Keeps a chunk for the next fragment, if there is room. It must not be
    /// charged any more.
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

    fn fits(&self, state: &State, bytes: usize) -> bool {
        state.used.checked_add(bytes).is_some_and(|used| used <= self.limit)
    }

    fn take(self: &Arc<Self>, state: &mut State, bytes: usize) -> Charge {
        self.rise(state, bytes);
        Charge { budget: Arc::clone(self), bytes }
    }

    fn add(&self, bytes: usize) {
        self.rise(&mut self.state.lock(), bytes);
    }

    fn rise(&self, state: &mut State, bytes: usize) {
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        while !state.spare.is_empty() && !self.fits(state, state.spare.len() * CHUNK_BYTES) {
            state.spare.pop();
        }
    }

    fn give_back(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.used -= bytes;
        if !state.queue.is_empty() {
            self.freed.notify_all();
        }
    }
}

/// Bytes taken from a budget, given back on drop.
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
        assert!(by <= self.bytes, "{by} of {} charged bytes given back", self.bytes);
        self.bytes -= by;
        self.budget.give_back(by);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    const NEVER: &dyn Fn() -> bool = &|| false;

    /// Returns when `waiting` threads stand in the queue.
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
    fn more_than_the_limit_is_refused_at_once() {
        let budget = MemoryBudget::new(100);
        assert!(budget.reserve(101, NEVER).is_none());
        assert!(budget.try_reserve(usize::MAX).is_none());
        let all = budget.reserve(100, NEVER).unwrap();
        assert!(budget.try_reserve(1).is_none());
        drop(all);
        assert_eq!(budget.try_reserve(1).unwrap().bytes(), 1);
    }

    #[test]
    fn a_large_request_is_not_overtaken_by_small_ones() {
        let budget = MemoryBudget::new(100);
        let held = budget.charge(50);
        let (told, order) = mpsc::channel();
        thread::scope(|scope| {
            for (place, bytes) in [90, 20].into_iter().enumerate() {
                let (budget, told) = (&budget, told.clone());
                scope.spawn(move || {
                    let charge = budget.reserve(bytes, NEVER).unwrap();
                    told.send((bytes, budget.used() >= bytes)).unwrap();
                    drop(charge);
                });
                until_queued(budget, place + 1);
            }
            assert!(budget.try_reserve(1).is_none(), "one byte would fit, but 90 wait for it");
            drop(held);
        });
        drop(told);
        assert_eq!(order.recv(), Ok((90, true)));
        assert_eq!(order.recv(), Ok((20, true)));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_cancelled_request_leaves_the_queue_to_the_next() {
        let budget = MemoryBudget::new(100);
        let held = budget.charge(50);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let big = scope.spawn(|| budget.reserve(90, &|| stop.load(Ordering::SeqCst)));
            until_queued(&budget, 1);
            let small = scope.spawn(|| budget.reserve(10, NEVER));
            until_queued(&budget, 2);
            stop.store(true, Ordering::SeqCst);
            budget.wake();
            assert!(big.join().unwrap().is_none());
            assert_eq!(small.join().unwrap().unwrap().bytes(), 10);
        });
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn reservations_never_pass_the_limit_however_many_ask() {
        let budget = MemoryBudget::new(1000);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..8usize {
                let (budget, now, most) = (&budget, &now, &most);
                scope.spawn(move || {
                    for step in 0..200 {
                        let bytes = 1 + (number * 131 + step * 71) % 600;
                        let charge = budget.reserve(bytes, NEVER).unwrap();
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
