//! Locks whose holder must not panic while it may be changing the guarded state. That
//! state could be half changed and cannot be trusted, so the process aborts, and
//! recovery starts from what is on disk.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::Duration;

use parking_lot::{RwLockReadGuard, WaitTimeoutResult};

use super::idle::idle;

const UNDER_LOCK: &str = "under a lock";

/// Logs the reason and aborts the process.
fn abort(what: impl fmt::Display) -> ! {
    tracing::error!("{what}: aborting the process");
    eprintln!("stele: {what}: aborting the process");
    std::process::abort()
}

/// Aborts the process if the thread starts to panic while this is held.
pub struct AbortOnPanic {
    what: &'static str,
    was_panicking: bool,
}

impl AbortOnPanic {
    #[inline]
    pub fn during(what: &'static str) -> AbortOnPanic {
        // Destructors that run during a panic may do regular work.
        AbortOnPanic { what, was_panicking: thread::panicking() }
    }
}

impl Drop for AbortOnPanic {
    #[inline]
    fn drop(&mut self) {
        if !self.was_panicking && thread::panicking() {
            abort(format_args!("panic {}", self.what));
        }
    }
}

#[derive(Default)]
pub struct Mutex<T> {
    inner: parking_lot::Mutex<T>,
}

pub struct MutexGuard<'a, T> {
    // Dropped first: the process aborts before another thread gets the lock.
    _abort: AbortOnPanic,
    held: parking_lot::MutexGuard<'a, T>,
}

impl<'a, T> MutexGuard<'a, T> {
    #[inline]
    fn new(held: parking_lot::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { _abort: AbortOnPanic::during(UNDER_LOCK), held }
    }

    /// Runs `step` with the lock released, then reacquires it.
    pub fn unlocked<U>(guard: &mut Self, step: impl FnOnce() -> U) -> U {
        parking_lot::MutexGuard::unlocked(&mut guard.held, step)
    }
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self.inner.lock())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// A lock that allows readers to panic, since they change nothing.
#[derive(Default)]
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
}

pub struct RwLockWriteGuard<'a, T> {
    // Dropped first: the process aborts before another thread gets the lock.
    _abort: AbortOnPanic,
    held: parking_lot::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { inner: parking_lot::RwLock::new(value) }
    }

    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read()
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.inner.write();
        RwLockWriteGuard { _abort: AbortOnPanic::during(UNDER_LOCK), held }
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    /// Yields the lock to waiting threads.
    #[inline]
    pub fn bump(guard: &mut Self) {
        parking_lot::RwLockWriteGuard::bump(&mut guard.held);
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

#[derive(Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    pub fn notify_all(&self) {
        self.inner.notify_all();
    }

    /// May return early: callers look again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match idle() {
            None => self.inner.wait(&mut guard.held),
            Some(idle) => MutexGuard::unlocked(guard, || idle()),
        }
    }

    /// May return early: callers look again.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        match idle() {
            None => drop(self.inner.wait_for(&mut guard.held, limit)),
            Some(idle) => MutexGuard::unlocked(guard, || idle()),
        }
    }

    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        limit: Duration,
    ) -> WaitTimeoutResult {
        self.inner.wait_while_for(&mut guard.held, condition, limit)
    }
}
