//! Turns: one task of this process at a time changes a node, so that many who
//! add children to it do not all begin again.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::node_name::NodeName;

/// Names share turns, which costs a wait now and then and bounds their number.
const TURNS: usize = 1024;

pub struct Turns {
    hasher: RandomState,
    places: Box<[Mutex<()>]>,
}

/// Ends when dropped. Whoever has one does not wait for another.
pub struct Turn<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Default for Turns {
    fn default() -> Turns {
        let places = (0..TURNS).map(|_| Mutex::new(())).collect();
        Turns { hasher: RandomState::new(), places }
    }
}

impl Turns {
    pub async fn wait(&self, name: &NodeName) -> Turn<'_> {
        let place = self.hasher.hash_one(name) as usize % TURNS;
        Turn { _held: self.places[place].lock().await }
    }
}
