//! Blocks a thread on a future, using the locks of this module.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::{Condvar, Mutex};

/// An auto-reset event that is set by waking its waker.
#[derive(Default)]
pub struct Park {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Park {
    fn wake(self: Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}

impl Park {
    pub fn new() -> Arc<Park> {
        Arc::default()
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }

    /// Waits until the event is set. The limit is a safety net that an explored
    /// schedule never reaches.
    pub fn wait(&self, limit: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.changed.wait_for(&mut woken, limit);
        }
        *woken = false;
    }

    /// Waits until the event is set or `time` has passed; the timeout is the normal end
    /// of the wait.
    pub fn sleep(&self, time: Duration) {
        let mut woken = self.woken.lock();
        self.changed.wait_while_for(&mut woken, |woken| !*woken, time);
        *woken = false;
    }
}

/// Runs a future to completion on this thread.
#[cfg(test)]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    use std::pin::pin;
    use std::task::{Context, Poll};
    const LIMIT: Duration = Duration::from_secs(60);
    let (park, mut future) = (Park::new(), pin!(future));
    let waker = park.waker();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park.wait(LIMIT),
        }
    }
}
