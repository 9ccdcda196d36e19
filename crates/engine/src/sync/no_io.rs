//! Locks under which nothing is read, written or opened: those that commits, reads or
//! publications of other tablets need. Debug builds check it.

use std::ops::{Deref, DerefMut};

use super::{Condvar, Mutex, MutexGuard};

/// A mutex whose holder does no I/O and waits for none.
#[derive(Default)]
pub struct NoIoMutex<T> {
    inner: Mutex<T>,
}

pub struct NoIoGuard<'a, T> {
    held: MutexGuard<'a, T>,
    _counted: depth::Counted,
}

impl<T> NoIoMutex<T> {
    pub fn new(value: T) -> NoIoMutex<T> {
        NoIoMutex { inner: Mutex::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> NoIoGuard<'_, T> {
        let held = self.inner.lock();
        NoIoGuard { held, _counted: depth::Counted::new() }
    }
}

impl<T> NoIoGuard<'_, T> {
    /// Releases the lock until `changed` is notified.
    pub fn wait(guard: &mut Self, changed: &Condvar) {
        let _released = depth::Released::new();
        changed.wait(&mut guard.held);
    }
}

impl<T> Deref for NoIoGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for NoIoGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// Panics in debug builds if the thread holds a lock under which I/O is forbidden.
#[inline]
pub fn assert_io_allowed() {
    depth::assert_none();
}

/// Counts the locks that a thread holds. Threads of an explored schedule share an
/// operating system thread, so there it counts nothing.
#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod depth {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::thread;

    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }

    pub struct Counted(PhantomData<*const ()>);

    impl Counted {
        pub fn new() -> Counted {
            DEPTH.set(DEPTH.get() + 1);
            Counted(PhantomData)
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    /// While it lives, one lock of the thread does not count: it is released during a wait.
    pub struct Released(PhantomData<*const ()>);

    impl Released {
        pub fn new() -> Released {
            DEPTH.set(DEPTH.get() - 1);
            Released(PhantomData)
        }
    }

    impl Drop for Released {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() + 1);
        }
    }

    pub fn assert_none() {
        // Destructors that run during a panic may do anything.
        assert!(DEPTH.get() == 0 || thread::panicking(), "I/O under a lock that others need");
    }
}

#[cfg(not(all(debug_assertions, not(feature = "shuttle"))))]
mod depth {
    pub struct Counted;

    impl Counted {
        #[inline]
        pub fn new() -> Counted {
            Counted
        }
    }

    pub struct Released;

    impl Released {
        #[inline]
        pub fn new() -> Released {
            Released
        }
    }

    #[inline]
    pub fn assert_none() {}
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use std::panic;

    use super::*;

    #[test]
    fn scale_3_8_io_under_such_a_lock_is_noticed() {
        let lock = NoIoMutex::new(());
        assert_io_allowed();
        let held = lock.lock();
        let noticed = panic::catch_unwind(assert_io_allowed);
        drop(held);
        assert!(noticed.is_err());
        assert_io_allowed();
    }
}
