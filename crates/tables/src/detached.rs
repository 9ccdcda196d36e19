//! Runs a future on whatever threads wake it, for calls that report by a callback. The
//! future must not block, because the thread belongs to somebody else.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

/// Starts a future on this thread. It continues on those that wake it.
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
