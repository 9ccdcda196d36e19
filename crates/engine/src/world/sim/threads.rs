//! Starts some workers of a store only, for tests that do the work of the others.

use std::io;

use super::super::spawn::{Joiner, Priority, Spawner, Threads};

/// Starts threads with these names and no others.
pub struct OnlyThreads(pub &'static [&'static str]);

struct NotStarted;

impl Spawner for OnlyThreads {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>> {
        match self.0.contains(&name) {
            true => Threads.spawn(name, priority, body),
            false => Ok(Box::new(NotStarted)),
        }
    }
}

impl Joiner for NotStarted {
    fn join(self: Box<Self>) {}
}
