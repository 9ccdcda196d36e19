//! A pointer that is swapped atomically, with the interface of arc-swap and driven by a
//! schedule: each load and each replacement is one step.

use std::ops::Deref;
use std::sync::Arc;

use super::Mutex;

pub struct ArcSwap<T> {
    current: Mutex<Arc<T>>,
}

/// A loaded pointer.
pub struct Guard<T>(T);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap { current: Mutex::new(Arc::new(value)) }
    }

    pub fn load(&self) -> Guard<Arc<T>> {
        Guard(self.load_full())
    }

    pub fn load_full(&self) -> Arc<T> {
        self.current.lock().clone()
    }

    /// Replaces the pointer with the result of `change`, retrying if another thread
    /// replaced it in the meantime.
    pub fn rcu(&self, mut change: impl FnMut(&Arc<T>) -> T) {
        loop {
            let before = self.load_full();
            let next = Arc::new(change(&before));
            let mut current = self.current.lock();
            if Arc::ptr_eq(&before, &current) {
                *current = next;
                return;
            }
        }
    }
}

/// A pointer that may be unset.
pub struct ArcSwapOption<T> {
    current: Mutex<Option<Arc<T>>>,
}

impl<T> Default for ArcSwapOption<T> {
    fn default() -> Self {
        ArcSwapOption { current: Mutex::new(None) }
    }
}

impl<T> ArcSwapOption<T> {
    pub fn load(&self) -> Guard<Option<Arc<T>>> {
        Guard(self.load_full())
    }

    pub fn load_full(&self) -> Option<Arc<T>> {
        self.current.lock().clone()
    }

    pub fn store(&self, next: Option<Arc<T>>) {
        *self.current.lock() = next;
    }

    /// Replaces the pointer if it points to `expected`.
    pub fn compare_and_swap(&self, expected: *const T, next: Option<Arc<T>>) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), expected)) {
            *current = next;
        }
    }
}
