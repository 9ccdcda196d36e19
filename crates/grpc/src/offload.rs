//! Decides which work leaves the runtime's threads. Work that computes for long
//! or blocks (on the disk or on a lock) would otherwise stall every other call of
//! its thread.
//!
//! [`offload`] moves work to another thread and is preferred. [`in_place`] is for
//! work that borrows from its caller or that rarely blocks: meanwhile, the
//! runtime moves its other tasks to another thread. Both are bounded, because the
//! runtime has a limited number of threads: `offload` queues, and calls that may
//! block in place are delayed by the server while [`is_saturated`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

/// The maximum number of offloaded work items that run concurrently.
const OFFLOADED_MAX: usize = 64;
/// The number of calls that block in place concurrently before others are
/// delayed.
const IN_PLACE_MAX: usize = 256;
/// The threads that a runtime needs for both, and for work that cannot be
/// delayed.
pub const BLOCKING_THREADS_MAX: usize = 2 * (OFFLOADED_MAX + IN_PLACE_MAX);
/// How long work waits for a thread before it is refused.
const QUEUE_WAIT: Duration = Duration::from_secs(30);

/// The cost class of a call, as declared in the method table of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Computes for less than a millisecond and never blocks.
    Small,
    /// May block on the disk or on a lock.
    Blocking,
    /// May compute for long: hashing, counting, compiling, decoding large
    /// messages.
    Long,
}

impl Cost {
    /// Runs the work of a call on a thread that its cost permits.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        match self {
            Cost::Small => Ok(work()),
            Cost::Blocking | Cost::Long => offload(work).await,
        }
    }
}

static OFFLOADED: Semaphore = Semaphore::const_new(OFFLOADED_MAX);

/// Runs work on a thread that may block. A panic of the work becomes INTERNAL.
/// Fails with RESOURCE_EXHAUSTED if no thread becomes free in time.
pub async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let permit = match tokio::time::timeout(QUEUE_WAIT, OFFLOADED.acquire()).await {
        Ok(permit) => permit.expect("the semaphore is never closed"),
        Err(_) => return Err(overloaded()),
    };
    // The permit belongs to the work, which keeps running if its call is
    // cancelled.
    let running = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    running.await.map_err(|stopped| match stopped.is_panic() {
        true => Status::internal("internal error: the call panicked"),
        false => Status::unavailable("the server is shutting down"),
    })
}

fn overloaded() -> Status {
    let retry = ErrorDetails::with_retry_info(Some(Duration::from_secs(1)));
    let message = "the server is busy: no thread was free for this call; try again later";
    Status::with_error_details(tonic::Code::ResourceExhausted, message, retry)
}

static IN_PLACE: AtomicUsize = AtomicUsize::new(0);
static DELAYED: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// Runs work that may block on the current thread. Within a task of a
/// multi-threaded runtime, the other tasks are moved to another thread first;
/// elsewhere there are none.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => {
            let _counted = InPlace::enter();
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// Copying this many bytes takes about as long as other calls of a thread should
/// be delayed.
const LARGE_BYTES: usize = 4 << 20;

/// Runs work that takes about as long as copying `bytes` bytes: directly if they
/// are few, otherwise [`in_place`].
pub fn in_place_if_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LARGE_BYTES { in_place(work) } else { work() }
}

struct InPlace;

impl InPlace {
    fn enter() -> InPlace {
        IN_PLACE.fetch_add(1, Ordering::SeqCst);
        InPlace
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        if IN_PLACE.fetch_sub(1, Ordering::SeqCst) == IN_PLACE_MAX {
            let woken = std::mem::take(&mut *DELAYED.lock());
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

/// Returns the number of calls that currently block in place.
pub fn in_place_now() -> usize {
    IN_PLACE.load(Ordering::Relaxed)
}

/// Returns whether the maximum number of calls block in place, so that no other should start.
pub fn is_saturated() -> bool {
    in_place_now() >= IN_PLACE_MAX
}

/// Delays a call while [`is_saturated`].
pub fn poll_unsaturated(cx: &mut Context<'_>) -> Poll<()> {
    if !is_saturated() {
        return Poll::Ready(());
    }
    let mut delayed = DELAYED.lock();
    // Check again under the lock: a call that leaves afterwards finds the waker.
    if IN_PLACE.load(Ordering::SeqCst) < IN_PLACE_MAX {
        return Poll::Ready(());
    }
    if !delayed.iter().any(|waker| waker.will_wake(cx.waker())) {
        delayed.push(cx.waker().clone());
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn offloaded_work_answers_and_its_panic_is_an_error() {
        assert_eq!(offload(|| 7).await.unwrap(), 7);
        assert_eq!(Cost::Long.run(|| 8).await.unwrap(), 8);
        let failed = offload(|| -> u8 { panic!("on purpose") }).await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Internal);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_while_a_call_waits_in_place() {
        let (send, receive) = std::sync::mpsc::channel();
        let waiting = tokio::spawn(async move { in_place(|| receive.recv().unwrap()) });
        let other = tokio::spawn(async move { send.send(9).unwrap() });
        other.await.unwrap();
        assert_eq!(waiting.await.unwrap(), 9);
        assert_eq!(in_place(|| 1), 1);
    }

    #[test]
    fn calls_are_delayed_while_too_many_wait_in_place() {
        struct Woken(AtomicUsize);
        impl std::task::Wake for Woken {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let woken = std::sync::Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(poll_unsaturated(&mut cx).is_ready());
        let mut entered: Vec<_> = (0..IN_PLACE_MAX).map(|_| InPlace::enter()).collect();
        assert!(poll_unsaturated(&mut cx).is_pending() && poll_unsaturated(&mut cx).is_pending());
        // Other tests of this process may block in place too.
        entered.truncate(IN_PLACE_MAX - 8);
        drop(entered);
        assert!(poll_unsaturated(&mut cx).is_ready());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }
}
