//! Threads, as the engine sees them.

use std::io;
use std::thread;

pub trait Spawner: Send + Sync {
    /// Starts a worker; the handle joins it when dropped through `join`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>>;
}

pub trait Joiner: Send + Sync {
    /// Waits until the worker has ended.
    fn join(self: Box<Self>);
}

/// Plain operating-system threads.
pub struct Threads;

impl Spawner for Threads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        let handle = thread::Builder::new().name(name.to_string()).spawn(body)?;
        Ok(Box::new(handle))
    }
}

impl Joiner for thread::JoinHandle<()> {
    fn join(self: Box<Self>) {
        if thread::JoinHandle::join(*self).is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}
