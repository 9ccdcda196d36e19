//! Names of new files whose outcome is not known yet: a file may have been stored, and a
//! config may name it. A collection of unused files leaves them alone, and all later ones.

use std::collections::BTreeSet;

use crate::sync::NoIoMutex;

pub struct PendingNames {
    state: NoIoMutex<State>,
}

struct State {
    next: u64,
    pending: BTreeSet<u64>,
}

impl Default for PendingNames {
    fn default() -> PendingNames {
        PendingNames { state: NoIoMutex::new(State { next: 1, pending: BTreeSet::new() }) }
    }
}

impl PendingNames {
    /// Returns a number that was not used before. It is pending until `end`.
    pub fn mint(&self) -> u64 {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.pending.insert(number);
        number
    }

    /// Records that the outcome is known: a config names the file, or never will.
    pub fn end(&self, number: u64) {
        self.state.lock().pending.remove(&number);
    }

    /// Returns the lowest number that is pending or was not used yet.
    pub fn oldest(&self) -> u64 {
        let state = self.state.lock();
        state.pending.first().copied().unwrap_or(state.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_4_6_the_oldest_pending_number_bounds_a_collection() {
        let names = PendingNames::default();
        assert_eq!(names.oldest(), 1);
        let [first, second, third] = [(); 3].map(|()| names.mint());
        assert_eq!((first, names.oldest()), (1, 1));
        names.end(second);
        assert_eq!(names.oldest(), first);
        names.end(first);
        assert_eq!(names.oldest(), third);
        names.end(third);
        assert_eq!(names.oldest(), 4);
    }
}
