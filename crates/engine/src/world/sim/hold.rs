//! Operations that block until a test releases them, so that a test can build up a
//! backlog without depending on a slow machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::faults::Operation;
use crate::sync::assert_io_allowed;

/// All holds of a machine.
#[derive(Default)]
pub struct Holds {
    /// Whether there is a hold; checked without the lock.
    any: AtomicBool,
    held: Mutex<Vec<HoldRule>>,
    /// Signalled when an operation begins to wait and when a hold is released.
    changed: Condvar,
}

struct HoldRule {
    number: u64,
    operation: Operation,
    path_part: String,
    thread_part: String,
    scope: Scope,
    waiting: usize,
}

/// How many of the matching operations a hold blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    All,
    First,
}

impl HoldRule {
    fn matches(&self, operation: Operation, path: &Path) -> bool {
        (self.scope == Scope::All || self.waiting == 0)
            && self.operation == operation
            && path.to_string_lossy().contains(&self.path_part)
            && thread::current().name().unwrap_or_default().contains(&self.thread_part)
    }
}

impl Holds {
    pub fn add(
        self: &Arc<Self>,
        operation: Operation,
        path_part: &str,
        thread_part: &str,
        scope: Scope,
    ) -> Hold {
        let (path_part, thread_part) = (path_part.to_string(), thread_part.to_string());
        let mut held = self.held.lock();
        let number = held.last().map_or(0, |last| last.number + 1);
        held.push(HoldRule { number, operation, path_part, thread_part, scope, waiting: 0 });
        self.any.store(true, Ordering::Release);
        Hold { holds: self.clone(), number }
    }

    /// Waits while a hold matches the operation.
    pub fn pass(&self, operation: Operation, path: &Path) {
        // Without workers, a file is removed by the thread that releases it last.
        if operation != Operation::Remove {
            assert_io_allowed();
        }
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut held = self.held.lock();
        while let Some(hold) = held.iter_mut().find(|hold| hold.matches(operation, path)) {
            let number = hold.number;
            hold.waiting += 1;
            self.changed.notify_all();
            while held.iter().any(|hold| hold.number == number) {
                self.changed.wait(&mut held);
            }
        }
    }
}

/// Blocks matching operations until it is dropped.
pub struct Hold {
    holds: Arc<Holds>,
    number: u64,
}

impl Hold {
    /// Returns the number of waiting operations.
    pub fn waiting(&self) -> usize {
        let held = self.holds.held.lock();
        let found = held.iter().find(|hold| hold.number == self.number);
        found.map_or(0, |hold| hold.waiting)
    }

    /// Blocks until an operation waits.
    pub fn wait_until_waiting(&self) {
        let mut held = self.holds.held.lock();
        while held.iter().all(|hold| hold.number != self.number || hold.waiting == 0) {
            self.holds.changed.wait(&mut held);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.held.lock();
        held.retain(|hold| hold.number != self.number);
        self.holds.any.store(!held.is_empty(), Ordering::Release);
        self.holds.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_operation_waits_and_no_other_does() {
        let holds = Arc::new(Holds::default());
        let hold = holds.add(Operation::Write, "log", "", Scope::All);
        let other = holds.add(Operation::Write, "log", "another thread", Scope::All);
        holds.pass(Operation::Sync, Path::new("/d/log"));
        holds.pass(Operation::Write, Path::new("/d/fragment"));
        thread::scope(|scope| {
            let waits = scope.spawn(|| holds.pass(Operation::Write, Path::new("/d/log")));
            hold.wait_until_waiting();
            assert!(!waits.is_finished() && other.waiting() == 0);
            drop(hold);
            waits.join().unwrap();
        });
        drop(other);
        holds.pass(Operation::Write, Path::new("/d/log"));
    }
    #[test]
    fn a_hold_of_the_first_operation_lets_the_others_pass() {
        let holds = Arc::new(Holds::default());
        let hold = holds.add(Operation::Create, "frag", "", Scope::First);
        thread::scope(|scope| {
            let first = scope.spawn(|| holds.pass(Operation::Create, Path::new("1.frag")));
            hold.wait_until_waiting();
            holds.pass(Operation::Create, Path::new("2.frag"));
            assert!(!first.is_finished() && hold.waiting() == 1);
            drop(hold);
        });
    }
}
