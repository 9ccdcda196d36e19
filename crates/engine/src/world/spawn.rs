//! The thread interface of the engine.

use std::io;
use std::thread;

use crate::sync::AbortOnPanic;

pub trait Spawner: Send + Sync {
    /// Starts a worker; `Joiner::join` waits for it to end.
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>>;
}

/// The urgency of a worker's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Callers wait for it.
    Normal,
    /// It yields to callers.
    Low,
}

/// The niceness of threads with low priority.
const LOW_NICENESS: i32 = 10;

pub trait Joiner: Send + Sync {
    /// Waits until the worker has ended.
    fn join(self: Box<Self>);
}

/// Plain operating-system threads.
pub struct Threads;

impl Spawner for Threads {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>> {
        let handle = thread::Builder::new().name(name.to_string()).spawn(move || {
            if priority == Priority::Low {
                give_way();
            }
            // Callers would wait forever for the work of a dead worker.
            let _abort = AbortOnPanic::during("in a worker thread");
            body();
        })?;
        Ok(Box::new(handle))
    }
}

/// Lowers the priority of this thread alone: Linux keeps one per thread.
fn give_way() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), LOW_NICENESS) {
        tracing::debug!(%error, "a worker keeps its ordinary priority");
    }
}

impl Joiner for thread::JoinHandle<()> {
    fn join(self: Box<Self>) {
        if thread::JoinHandle::join(*self).is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}
