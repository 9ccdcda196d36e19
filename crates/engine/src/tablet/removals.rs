//! Removes files that no row refers to any more, after their last reader. A store with
//! threads does it on one of them, because removing a large file takes long and the last
//! reader should not have to wait for it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::fragment::Fragment;
use crate::sync::{Condvar, Mutex};
use crate::world::Files;

/// A file that nobody reads any more.
pub struct Unused {
    /// Open, if it ever was; the cache drops what it has of it.
    pub fragment: Option<Arc<Fragment>>,
    /// Set if the file itself is to be removed.
    pub path: Option<PathBuf>,
}

pub struct Removals {
    files: Arc<dyn Files>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    unused: VecDeque<Unused>,
    /// Whether a thread works on the queue. Without one, callers do the work.
    attended: bool,
    ended: bool,
}

impl Removals {
    pub fn new(files: Arc<dyn Files>) -> Removals {
        Removals { files, queue: Mutex::new(Queue::default()), changed: Condvar::new() }
    }

    /// Releases a file, on the worker's thread if there is one.
    pub fn submit(&self, unused: Unused) {
        let mut queue = self.queue.lock();
        if queue.attended {
            queue.unused.push_back(unused);
            self.changed.notify_one();
        } else {
            drop(queue);
            self.release(unused);
        }
    }

    /// Announces the worker, which will call `run`.
    pub fn attend(&self) {
        let mut queue = self.queue.lock();
        (queue.attended, queue.ended) = (true, false);
    }

    /// Works on the queue until `end` is called and the queue is empty.
    pub fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(unused) = queue.unused.pop_front() {
                drop(queue);
                self.release(unused);
                queue = self.queue.lock();
            } else if queue.ended {
                queue.attended = false;
                return;
            } else {
                self.changed.wait(&mut queue);
            }
        }
    }

    /// Lets the worker end.
    pub fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_all();
    }

    fn release(&self, Unused { fragment, path }: Unused) {
        // Before the file is removed: it may be needed to find its blocks in the cache.
        drop(fragment);
        let Some(path) = path else { return };
        match self.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // The next open removes files that are not in the config.
                tracing::warn!(path = %path.display(), %error, "could not remove a fragment");
            }
            _ => {}
        }
    }
}
