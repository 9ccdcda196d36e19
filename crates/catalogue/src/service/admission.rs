//! Applies commits without blocking a thread of the runtime, and commits that create
//! catalogues without holding a lock while they wait.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use parking_lot::MutexGuard;
use stele_engine::{Commit, Txn};
use stele_grpc::offload::in_place;
use stele_tables::Permit;

use super::Catalogues;
use crate::error::Result;
use crate::layout::Object;

impl Catalogues {
    /// Applies a commit, without waiting for the disk.
    pub(super) fn apply(&self, commit: &Commit) -> Result<Txn> {
        let permit = self.admit(commit)?;
        Ok(self.tenure().open(self.meta().apply(permit, Txn::MAX))?)
    }

    /// Waits until the store has capacity for a commit. This is rare, so most commits
    /// stay on their thread.
    fn admit<'c>(&'c self, commit: &'c Commit) -> Result<Permit<'c>> {
        match self.meta().try_admit(commit)? {
            Some(permit) => Ok(permit),
            None => Ok(in_place(|| wait_for(self.meta().admit(commit)))?),
        }
    }

    /// Applies a commit that creates the catalogues with the objects from `first` to
    /// `after` (exclusive). Returns `None` if other catalogues were created in the
    /// meantime.
    pub(super) fn apply_creation(
        &self,
        commit: &Commit,
        first: Object,
        after: Object,
        held: Option<MutexGuard<'_, Object>>,
    ) -> Result<Option<Txn>> {
        let permit = self.admit(commit)?;
        let mut next_object = held.unwrap_or_else(|| self.lock_creation());
        if *next_object != first {
            return Ok(None);
        }
        let txn = self.tenure().open(self.meta().apply(permit, Txn::MAX))?;
        *next_object = after;
        Ok(Some(txn))
    }

    /// Prevents other creations of catalogues.
    pub(super) fn lock_creation(&self) -> MutexGuard<'_, Object> {
        self.next_object.try_lock().unwrap_or_else(|| in_place(|| self.next_object.lock()))
    }
}

/// Runs a future of the engine to completion on this thread.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_is_woken_by_another_thread_completes() {
        let (send, receive) = tokio::sync::oneshot::channel();
        let sending = thread::spawn(move || send.send(7).unwrap());
        assert_eq!(wait_for(receive).unwrap(), 7);
        sending.join().unwrap();
    }
}
