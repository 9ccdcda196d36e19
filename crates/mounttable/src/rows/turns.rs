//! Turns: one task of this process at a time changes a node, so that concurrent
//! additions of children do not all have to retry.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::node_name::NodeName;

/// Number of locks. Names share them, which bounds their number and rarely delays an
/// operation.
const TURNS: usize = 1024;

pub struct Turns {
    hasher: RandomState,
    locks: Box<[Mutex<()>]>,
}

/// A turn, which ends when it is dropped. Its holder must not wait for another one.
pub struct Turn<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Default for Turns {
    fn default() -> Turns {
        let locks = (0..TURNS).map(|_| Mutex::new(())).collect();
        Turns { hasher: RandomState::new(), locks }
    }
}

impl Turns {
    pub async fn wait(&self, name: &NodeName) -> Turn<'_> {
        let index = self.hasher.hash_one(name) as usize % TURNS;
        Turn { _held: self.locks[index].lock().await }
    }
}
