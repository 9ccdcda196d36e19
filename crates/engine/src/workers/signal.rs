//! Wakes a worker, without a tick while there is nothing to do.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A bell that stays rung until somebody hears it.
#[derive(Default)]
pub struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub fn raise(&self) {
        let mut raised = self.raised.lock();
        if !*raised {
            *raised = true;
            self.changed.notify_one();
        }
    }

    /// Waits until the signal is raised or the time is up, and lowers it.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut raised = self.raised.lock();
        if !*raised {
            match timeout {
                None => self.changed.wait(&mut raised),
                Some(timeout) => drop(self.changed.wait_for(&mut raised, timeout)),
            }
        }
        *raised = false;
    }
}
