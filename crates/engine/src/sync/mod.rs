//! Locks, condition variables and atomics for modules that share state between threads.
//! Normally those of parking_lot, arc-swap and std, plus locks whose holder must not
//! panic (`fatal`); with the feature `shuttle`, stand-ins of the same names whose every
//! step is scheduled by the test (`tests/shuttle`). `no_io` has a mutex whose holder does
//! no I/O.
//!
//! All locks that are held across another lock or across file I/O come from here: a
//! thread that is descheduled must not hold a lock that shuttle cannot see. Counters
//! that no decision depends on remain those of std, to keep schedules short.

#[cfg(not(feature = "shuttle"))]
mod fatal;
#[cfg(not(feature = "shuttle"))]
mod idle;
mod no_io;
mod park;
#[cfg(feature = "shuttle")]
mod scheduled;
#[cfg(feature = "shuttle")]
mod swap;

pub use no_io::{NoIoGuard, NoIoMutex, assert_io_allowed};
pub use park::Park;
#[cfg(test)]
pub use park::block_on;
#[cfg(feature = "shuttle")]
pub use scheduled::{
    AbortOnPanic, Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;
#[cfg(feature = "shuttle")]
pub use swap::{ArcSwap, ArcSwapOption, Guard};

#[cfg(not(feature = "shuttle"))]
pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(not(feature = "shuttle"))]
pub use fatal::{AbortOnPanic, Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub use idle::IdleScope;
#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{MappedRwLockReadGuard, RwLockReadGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;
