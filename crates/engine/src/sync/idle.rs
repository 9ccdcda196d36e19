//! What a thread does instead of waiting. In a simulation one thread runs all servers: if
//! it waited, nothing would ever happen that ends the wait. So it runs the next event, and
//! looks again.

use std::cell::RefCell;
use std::rc::Rc;

type Idle = Rc<dyn Fn()>;

thread_local! {
    static IDLE: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

/// While it lives, this thread does something else whenever it would wait.
pub struct IdleScope {
    before: Option<Idle>,
}

impl IdleScope {
    /// `idle` returns after something has happened.
    pub fn enter(idle: impl Fn() + 'static) -> IdleScope {
        IdleScope { before: IDLE.replace(Some(Rc::new(idle))) }
    }
}

impl Drop for IdleScope {
    fn drop(&mut self) {
        IDLE.set(self.before.take());
    }
}

/// Returns what this thread does instead of waiting, if it is in a simulation.
#[inline]
pub(super) fn idle() -> Option<Idle> {
    IDLE.with_borrow(Clone::clone)
}
