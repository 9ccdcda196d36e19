//! Wakes workers, without polling while they are idle.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// An auto-reset event.
#[derive(Default)]
pub struct Signal {
    state: Mutex<Flags>,
    changed: Condvar,
}

#[derive(Default)]
struct Flags {
    raised: bool,
    /// Permanently raised: the worker must exit.
    ended: bool,
}

impl Signal {
    pub fn raise(&self) {
        let mut state = self.state.lock();
        if !state.raised {
            state.raised = true;
            self.changed.notify_one();
        }
    }

    /// Releases all current and future waiters.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until the signal is raised or the timeout expires, and resets it.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut state = self.state.lock();
        if !state.raised && !state.ended {
            match timeout {
                None => self.changed.wait(&mut state),
                Some(timeout) => self.changed.wait_for(&mut state, timeout),
            }
        }
        state.raised = false;
    }
}
