//! Locks and condition variables driven by a schedule, with the subset of parking_lot's
//! interface that the engine uses.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::{sync, thread};

/// How many times a wait with a timeout yields before it expires.
const TIMEOUT_YIELDS: usize = 3;

/// Why a guard is never empty outside the call that borrows it.
const HELD: &str = "a guard holds its lock except during a wait";

/// Does nothing: a panic ends the schedule and is reported.
pub struct AbortOnPanic;

impl AbortOnPanic {
    pub fn during(_: &'static str) -> AbortOnPanic {
        AbortOnPanic
    }
}

#[derive(Default)]
pub struct Mutex<T> {
    inner: sync::Mutex<T>,
}

pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex { inner: sync::Mutex::new(value) }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.acquire()) }
    }

    fn acquire(&self) -> sync::MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Runs `step` with the lock released, then reacquires it.
    pub fn unlocked<U>(guard: &mut Self, step: impl FnOnce() -> U) -> U {
        drop(guard.held.take());
        let result = step();
        guard.held = Some(guard.mutex.acquire());
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

#[derive(Default)]
pub struct Condvar {
    inner: sync::Condvar,
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    pub fn notify_all(&self) {
        self.inner.notify_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits without ever timing out: these limits are safety nets, and a lost wakeup
    /// that only the limit would repair must surface as a deadlock.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        let held = guard.held.take().expect(HELD);
        let waited = self.inner.wait_timeout(held, limit);
        let (held, _) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
    }

    /// Waits and times out after a few turns: here the timeout is the normal end of the
    /// wait.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        _: Duration,
    ) {
        for _ in 0..TIMEOUT_YIELDS {
            if !condition(guard) {
                return;
            }
            MutexGuard::unlocked(guard, thread::yield_now);
        }
    }
}

#[derive(Default)]
pub struct RwLock<T> {
    inner: sync::RwLock<T>,
}

pub struct RwLockReadGuard<'a, T> {
    held: sync::RwLockReadGuard<'a, T>,
}

pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    held: Option<sync::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock { inner: sync::RwLock::new(value) }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { held: self.inner.read().unwrap_or_else(PoisonError::into_inner) }
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, held: Some(self.acquire()) }
    }

    fn acquire(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> RwLockReadGuard<'a, T> {
    /// Maps the guard to a part of the locked value.
    pub fn map<U>(
        guard: Self,
        part: impl for<'b> Fn(&'b T) -> &'b U + 'a,
    ) -> MappedRwLockReadGuard<'a, U>
    where
        T: 'a,
        U: 'a,
    {
        MappedRwLockReadGuard { held: Box::new(MappedGuard { guard, part }) }
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    /// Yields the lock to waiting threads.
    pub fn bump(guard: &mut Self) {
        drop(guard.held.take());
        guard.held = Some(guard.lock.acquire());
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

pub struct MappedRwLockReadGuard<'a, U> {
    held: Box<dyn Deref<Target = U> + 'a>,
}

impl<U> Deref for MappedRwLockReadGuard<'_, U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.held
    }
}

struct MappedGuard<'a, T, F> {
    guard: RwLockReadGuard<'a, T>,
    part: F,
}

impl<T, U, F: for<'b> Fn(&'b T) -> &'b U> Deref for MappedGuard<'_, T, F> {
    type Target = U;

    fn deref(&self) -> &U {
        (self.part)(&self.guard)
    }
}
