//! The memory budget that all responses share while they are collected and
//! sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of a server.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Left>);

#[derive(Debug)]
struct Left(AtomicUsize);

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget(Arc::new(Left(AtomicUsize::new(bytes))))
    }

    /// Returns an empty reservation.
    pub fn reservation(&self) -> Reservation {
        Reservation { budget: self.0.clone(), bytes: 0 }
    }
}

/// The reservation of one response, which is released at its end.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Left>,
    bytes: usize,
}

impl Reservation {
    /// Reserves more bytes. Returns whether they were available.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let taken = self
            .budget
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_not_available_to_others() {
        let budget = Budget::new(10);
        let (mut first, mut second) = (budget.reservation(), budget.reservation());
        assert!(first.try_grow(4) && first.try_grow(4));
        assert!(!second.try_grow(3) && second.try_grow(2));
        drop(first);
        assert!(second.try_grow(8) && !second.try_grow(1));
    }
}
