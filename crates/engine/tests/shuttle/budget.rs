//! The memory budget under every schedule: waiters make progress, and the sum of all
//! grants never exceeds the limit.

use std::sync::Arc;
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use stele_engine::budget::MemoryBudget;

use super::explore;

const LIMIT: usize = 100;

#[test]
fn everybody_who_waits_for_memory_gets_it_and_the_sum_never_passes_the_limit() {
    explore(10_000, || {
        let budget = MemoryBudget::new(LIMIT);
        let held = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = [[60, 30], [90, 10], [40, 100]]
            .into_iter()
            .map(|requests| {
                let (budget, held) = (budget.clone(), held.clone());
                thread::spawn(move || {
                    for bytes in requests {
                        let mut charge = block_on(budget.reserve(bytes));
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(sum <= LIMIT, "{sum} bytes are out");
                        assert!(budget.used() >= bytes);
                        // Returned in two parts: the first is not enough for all
                        // waiters.
                        held.fetch_sub(bytes / 2, Ordering::SeqCst);
                        charge.shrink(bytes / 2);
                        held.fetch_sub(bytes - bytes / 2, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_request_that_is_dropped_leaves_its_place_to_the_next() {
    explore(10_000, || {
        let budget = MemoryBudget::new(LIMIT);
        let held = budget.charge(50);
        let large = {
            let budget = budget.clone();
            thread::spawn(move || {
                let mut request = Box::pin(budget.reserve(90));
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..2 {
                    // Granted only if everything else was returned before.
                    let _ = request.as_mut().poll(&mut context).map(drop);
                    thread::yield_now();
                }
            })
        };
        let small = {
            let budget = budget.clone();
            thread::spawn(move || block_on(budget.reserve(40)).bytes())
        };
        large.join().unwrap();
        assert_eq!(small.join().unwrap(), 40);
        drop(held);
        assert_eq!(budget.used(), 0);
    });
}
