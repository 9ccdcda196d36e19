//! Futures without a runtime: on whatever threads wake them, for calls that report by a
//! callback, and on a thread that waits for them.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use stele_engine::fatal;

/// Runs a future on this thread, blocking it.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let woken = Arc::new(Woken::default());
    let (waker, mut future) = (Waker::from(woken.clone()), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = woken.is_woken.lock();
        while !*is_woken {
            woken.changed.wait(&mut is_woken);
        }
        *is_woken = false;
    }
}

/// Of the engine, so that a simulation goes on while a thread waits.
#[derive(Default)]
struct Woken {
    is_woken: fatal::Mutex<bool>,
    changed: fatal::Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.changed.notify_one();
    }
}

/// Starts a future on this thread. It continues on those that wake it, so it must not
/// block: they belong to somebody else.
pub(crate) fn detach(future: impl Future<Output = ()> + Send + 'static) {
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    Arc::new(Task { future: Mutex::new(Some(future)), is_woken: AtomicBool::new(false) }).wake();
}

struct Task {
    /// `None` after its end.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    is_woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // If another thread polls, or this one further up its stack, that polls again.
        while self.is_woken.load(Ordering::SeqCst)
            && let Some(mut future) = self.future.try_lock()
        {
            self.is_woken.store(false, Ordering::SeqCst);
            let waker = Waker::from(self.clone());
            let ended = future.as_mut().is_none_or(|future| {
                future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            });
            if ended {
                *future = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use futures_channel::oneshot;

    use super::*;

    #[test]
    fn a_thread_waits_for_a_future_that_others_complete() {
        let (sender, receiver) = oneshot::channel();
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(wait(receiver), Ok(7));
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_future_continues_on_the_threads_that_wake_it() {
        for _ in 0..200 {
            let (ended, outcome) = mpsc::channel();
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..5).map(|_| oneshot::channel::<u32>()).unzip();
            detach(async move {
                let mut sum = 0;
                for receiver in receivers {
                    sum += receiver.await.unwrap();
                }
                ended.send(sum).unwrap();
            });
            let threads = (1..)
                .zip(senders)
                .map(|(number, sender)| thread::spawn(move || sender.send(number).unwrap()));
            let threads: Vec<_> = threads.collect();
            assert_eq!(outcome.recv().unwrap(), 15);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
}
