//! Callbacks that wait for an index to become durable. They fire in order and
//! outside every lock, so that one may call back into the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

pub type Callback = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
struct Lists {
    /// By index, then by order of arrival.
    waiting: BTreeMap<(u64, u64), Callback>,
    arrivals: u64,
    /// Ready to be called, in order.
    due: VecDeque<(Callback, Result<()>)>,
    /// Whether some thread is calling: it will call what becomes due meanwhile.
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

    /// The lowest index that a callback waits for.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.lists.lock().waiting.first_key_value().map(|((index, _), _)| *index)
    }

    /// Everything up to `durable` is done.
    pub(super) fn reached(&self, durable: u64) {
        let mut lists = self.lists.lock();
        while let Some(first) = lists.waiting.first_entry()
            && first.key().0 <= durable
        {
            let callback = first.remove();
            lists.due.push_back((callback, Ok(())));
        }
    }

    /// Nothing more will be done.
    pub(super) fn failed(&self, cause: &Arc<Error>) {
        let mut lists = self.lists.lock();
        while let Some((_, callback)) = lists.waiting.pop_first() {
            lists.due.push_back((callback, Err(Error::Stopped(cause.clone()))));
        }
    }

    /// Calls what is due. The caller holds no lock.
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
