//! A process in a simulation: whatever it does happens in events of its own, which wait
//! while it is paused and stop when it crashes. It also runs futures, one step per event.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::Mutex;

use super::Agenda;
use crate::world::Clock;

/// Longest time until a task that was woken runs.
const STEP_MAX: Duration = Duration::from_micros(200);

pub struct SimProcess {
    agenda: Arc<Agenda>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_crashed: bool,
    paused_until: Duration,
}

type Event = Box<dyn FnOnce() + Send>;

impl SimProcess {
    pub fn start(agenda: &Arc<Agenda>) -> Arc<SimProcess> {
        Arc::new(SimProcess { agenda: agenda.clone(), state: Mutex::default() })
    }

    pub fn agenda(&self) -> &Arc<Agenda> {
        &self.agenda
    }

    /// Ends the process. Nothing happens in it any more.
    pub fn crash(&self) {
        self.state.lock().has_crashed = true;
    }

    pub fn has_crashed(&self) -> bool {
        self.state.lock().has_crashed
    }

    /// Stops the process for some time, as SIGSTOP or a suspended machine does. The clock
    /// goes on.
    pub fn pause(&self, time: Duration) {
        let until = self.agenda.elapsed() + time;
        let mut state = self.state.lock();
        state.paused_until = state.paused_until.max(until);
    }

    /// Adds an event of the process that happens after a delay, or later if it is paused
    /// then.
    pub fn after(self: &Arc<Self>, delay: Duration, event: impl FnOnce() + Send + 'static) {
        let process = self.clone();
        self.agenda.after(delay, move || process.happen(Box::new(event)));
    }

    fn happen(self: Arc<Self>, event: Event) {
        let state = self.state.lock();
        let (has_crashed, paused_until) = (state.has_crashed, state.paused_until);
        drop(state);
        if has_crashed {
            return;
        }
        let left = paused_until.saturating_sub(self.agenda.elapsed());
        if left.is_zero() {
            return event();
        }
        let delay = left + self.agenda.delay(STEP_MAX);
        let agenda = self.agenda.clone();
        agenda.after(delay, move || self.happen(event));
    }

    /// Runs a future in the process.
    pub fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let task = Task {
            process: self.clone(),
            future: Mutex::new(Some(Box::pin(future))),
            is_due: AtomicBool::new(false),
            is_missed: AtomicBool::new(false),
        };
        Arc::new(task).wake();
    }

    /// Waits for some time.
    pub fn sleep(self: &Arc<Self>, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let (ended, outcome) = oneshot::channel();
        // Nobody may be waiting any more.
        self.after(time, move || {
            let _ = ended.send(());
        });
        async move {
            // Without an event the process has crashed, and nobody waits.
            let _ = outcome.await;
        }
    }
}

struct Task {
    process: Arc<SimProcess>,
    /// `None` while it runs and after its end.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// Whether an event that runs it is coming.
    is_due: AtomicBool,
    /// Whether it was woken while it ran: it may wait in the middle of a step, while other
    /// events go on.
    is_missed: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_due.swap(true, Ordering::SeqCst) {
            let delay = self.process.agenda.delay(STEP_MAX);
            let task = self.clone();
            self.process.after(delay, move || task.run());
        }
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        self.is_due.store(false, Ordering::SeqCst);
        let Some(mut future) = self.future.lock().take() else {
            self.is_missed.store(true, Ordering::SeqCst);
            return;
        };
        let waker = Waker::from(self.clone());
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *self.future.lock() = Some(future);
            if self.is_missed.swap(false, Ordering::SeqCst) {
                self.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_process_does_nothing_and_a_crashed_one_nothing_more() {
        let agenda = Agenda::new(1);
        let process = SimProcess::start(&agenda);
        let ticks = Arc::new(Mutex::new(Vec::new()));
        let (task, noted) = (process.clone(), ticks.clone());
        process.spawn(async move {
            loop {
                task.sleep(Duration::from_secs(1)).await;
                noted.lock().push(task.agenda.elapsed().as_secs());
            }
        });
        let run = |seconds| agenda.run_for(Duration::from_secs(seconds), || false);
        run(3);
        process.pause(Duration::from_secs(10));
        run(9);
        assert_eq!(*ticks.lock(), [1, 2]);
        run(3);
        assert_eq!(*ticks.lock(), [1, 2, 13, 14]);
        process.crash();
        run(10);
        assert_eq!(ticks.lock().len(), 4);
    }
}
