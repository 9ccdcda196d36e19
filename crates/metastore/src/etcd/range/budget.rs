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
    pub fn hold(&self) -> Held {
        Held { budget: self.0.clone(), bytes: 0 }
    }
}

/// The reservation of one response, which is released at its end.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Left>,
    bytes: usize,
}

impl Held {
    /// Reserves more bytes, if available.
    pub fn take(&mut self, bytes: usize) -> bool {
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

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_holds_another_cannot_have() {
        let budget = Budget::new(10);
        let (mut first, mut second) = (budget.hold(), budget.hold());
        assert!(first.take(4) && first.take(4));
        assert!(!second.take(3) && second.take(2));
        drop(first);
        assert!(second.take(8) && !second.take(1));
    }
}
