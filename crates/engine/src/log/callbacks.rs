//! Callbacks waiting for an index to become durable. They run in order and with
//! no lock held, so that they may call back into the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

pub type Callback = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
struct Lists {
    /// Ordered by index, then by arrival.
    waiting: BTreeMap<(u64, u64), Callback>,
    arrivals: u64,
    /// Ready to run, in order.
    due: VecDeque<(Callback, Result<()>)>,
    /// Whether a thread is running callbacks; it also runs those that become
    /// due meanwhile.
    firing: bool,
}

#[derive(Default)]
pub(super) struct Callbacks {
    lists: Mutex<Lists>,
}

impl Callbacks {
    pub(super) fn add(&self, index: u64, callback: Callback) {
        let mut lists = self.lists.lock();
        lists.arrivals += 1;
        let arrival = lists.arrivals;
        lists.waiting.insert((index, arrival), callback);
    }

    /// Whether a callback waits for an index above this one.
    pub(super) fn any_above(&self, index: u64) -> bool {
        let lists = self.lists.lock();
        lists.waiting.last_key_value().is_some_and(|((last, _), _)| *last > index)
    }

    /// Marks callbacks up to `durable` as due.
    pub(super) fn reached(&self, durable: u64) {
        let mut lists = self.lists.lock();
        while let Some(first) = lists.waiting.first_entry()
            && first.key().0 <= durable
        {
            let callback = first.remove();
            lists.due.push_back((callback, Ok(())));
        }
    }

    /// Marks all callbacks as due, with the error.
    pub(super) fn failed(&self, cause: &Arc<Error>) {
        let mut lists = self.lists.lock();
        while let Some((_, callback)) = lists.waiting.pop_first() {
            lists.due.push_back((callback, Err(Error::Stopped(cause.clone()))));
        }
    }

    /// Runs the callbacks that are due. The caller must hold no lock.
    pub(super) fn fire(&self) {
        let mut lists = self.lists.lock();
        if lists.firing {
            return;
        }
        lists.firing = true;
        while let Some((callback, result)) = lists.due.pop_front() {
            MutexGuard::unlocked(&mut lists, || callback(result));
        }
        lists.firing = false;
    }
}
