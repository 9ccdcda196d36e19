//! What a client remembers: for a name, the servers that were found there.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Place;
use crate::clock::Clock;
use crate::name;
use crate::node::Server;
use crate::tree::Entry;

const ENTRIES_MAX: usize = 4000;
/// What is left when there are too many.
const ENTRIES_KEPT: usize = 3000;

pub struct Cache {
    enabled: bool,
    clock: Clock,
    /// By the full name of the mount point.
    entries: Mutex<HashMap<String, Entry>>,
}

impl Cache {
    pub fn new(enabled: bool) -> Cache {
        Cache { enabled, clock: Clock::system(), entries: Mutex::default() }
    }

    /// What is known about the longest beginning of a name. An entry with a
    /// server that has expired is not to be trusted at all.
    pub fn find(&self, place: &Place) -> Option<Entry> {
        let full = place.full();
        let entries = self.entries.lock();
        let now = self.clock.now();
        let mut prefix = &full[..];
        loop {
            let fresh = |entry: &&Entry| {
                entry.servers.iter().all(|server: &Server| server.deadline_micros >= now)
            };
            if let Some(entry) = entries.get(prefix).filter(fresh) {
                let rest = full[prefix.len()..].trim_start_matches('/').to_string();
                return Some(Entry { name: rest, ..entry.clone() });
            }
            let cut = prefix.rfind('/').filter(|cut| *cut > place.server.len())?;
            prefix = &prefix[..cut];
        }
    }

    /// Remembers what a server has told about a name.
    pub fn remember(&self, place: &Place, entry: &Entry) {
        if !self.enabled || entry.servers.is_empty() {
            return;
        }
        let mount_point = match &entry.name[..] {
            "" => place.full(),
            rest => name::trim_suffix(&place.full(), rest),
        };
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX {
            trim(&mut entries, self.clock.now());
        }
        entries.insert(mount_point, Entry { name: String::new(), ..entry.clone() });
    }

    /// Forgets what is known about the beginnings of a name.
    pub fn forget(&self, place: &Place) {
        let full = place.full();
        self.entries.lock().retain(|known, _| {
            !full.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
    }
}

/// Drops what has expired, then any, until there is room.
fn trim(entries: &mut HashMap<String, Entry>, now: i64) {
    entries.retain(|_, entry| entry.servers.iter().all(|server| server.deadline_micros >= now));
    let mut excess = entries.len().saturating_sub(ENTRIES_KEPT);
    entries.retain(|_, _| {
        let goes = excess > 0;
        excess -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Flags;

    fn place(name: &str) -> Place {
        Place { server: "r:1".into(), name: name.into() }
    }

    fn entry(rest: &str, deadline_micros: i64) -> Entry {
        let server = Server { address: "h:1".into(), deadline_micros, flags: Flags::default() };
        Entry { name: rest.into(), servers: vec![server], flags: Flags::default() }
    }

    #[test]
    fn the_longest_beginning_is_found_and_can_be_forgotten() {
        let cache = Cache::new(true);
        cache.remember(&place("a/b/c"), &entry("b/c", i64::MAX));
        cache.remember(&place("a/b/c"), &entry("", i64::MAX));
        assert_eq!(cache.find(&place("a/b/c/d")).unwrap().name, "d");
        assert_eq!(cache.find(&place("a/b")).unwrap().name, "b");
        assert_eq!(cache.find(&place("ab")), None);
        cache.forget(&place("a/b/c"));
        assert_eq!(cache.find(&place("a/b/c")), None);
    }

    #[test]
    fn what_has_expired_is_not_used_and_too_many_are_trimmed() {
        let cache = Cache::new(true);
        cache.remember(&place("old"), &entry("", 1));
        assert_eq!(cache.find(&place("old")), None);
        for number in 0..=ENTRIES_MAX {
            cache.remember(&place(&number.to_string()), &entry("", i64::MAX));
        }
        let left = cache.entries.lock().len();
        assert!((ENTRIES_KEPT..=ENTRIES_KEPT + 2).contains(&left), "{left}");
        let disabled = Cache::new(false);
        disabled.remember(&place("a"), &entry("", i64::MAX));
        assert_eq!(disabled.find(&place("a")), None);
    }
}
