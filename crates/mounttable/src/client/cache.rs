//! The client's cache: the servers found for a name.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Location;
use crate::clock::Clock;
use crate::name;
use crate::node::Server;
use crate::tree::Entry;

const ENTRIES_MAX: usize = 4000;
/// Number of entries that are left after trimming.
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

    /// Returns the entry of the longest cached prefix of a name. An entry with an
    /// expired server is not used at all.
    pub fn find(&self, location: &Location) -> Option<Entry> {
        let full = location.full();
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
            let cut = prefix.rfind('/').filter(|cut| *cut > location.server.len())?;
            prefix = &prefix[..cut];
        }
    }

    /// Stores a server's reply for a name.
    pub fn remember(&self, location: &Location, entry: &Entry) {
        if !self.enabled || entry.servers.is_empty() {
            return;
        }
        let mount_point = match &entry.name[..] {
            "" => location.full(),
            rest => name::trim_suffix(&location.full(), rest),
        };
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX {
            trim(&mut entries, self.clock.now());
        }
        entries.insert(mount_point, Entry { name: String::new(), ..entry.clone() });
    }

    /// Removes the entries of all prefixes of a name.
    pub fn forget(&self, location: &Location) {
        let full = location.full();
        self.entries.lock().retain(|known, _| {
            !full.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
    }
}

/// Removes expired entries, then arbitrary ones, until there is space.
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

    fn location(name: &str) -> Location {
        Location { server: "r:1".into(), name: name.into() }
    }

    fn entry(rest: &str, deadline_micros: i64) -> Entry {
        let server = Server { address: "h:1".into(), deadline_micros, flags: Flags::default() };
        Entry { name: rest.into(), servers: vec![server], flags: Flags::default() }
    }

    #[test]
    fn the_longest_prefix_is_found_and_can_be_removed() {
        let cache = Cache::new(true);
        cache.remember(&location("a/b/c"), &entry("b/c", i64::MAX));
        cache.remember(&location("a/b/c"), &entry("", i64::MAX));
        assert_eq!(cache.find(&location("a/b/c/d")).unwrap().name, "d");
        assert_eq!(cache.find(&location("a/b")).unwrap().name, "b");
        assert_eq!(cache.find(&location("ab")), None);
        cache.forget(&location("a/b/c"));
        assert_eq!(cache.find(&location("a/b/c")), None);
    }

    #[test]
    fn expired_entries_are_not_used_and_a_full_cache_is_trimmed() {
        let cache = Cache::new(true);
        cache.remember(&location("old"), &entry("", 1));
        assert_eq!(cache.find(&location("old")), None);
        for number in 0..=ENTRIES_MAX {
            cache.remember(&location(&number.to_string()), &entry("", i64::MAX));
        }
        let left = cache.entries.lock().len();
        assert!((ENTRIES_KEPT..=ENTRIES_KEPT + 2).contains(&left), "{left}");
        let disabled = Cache::new(false);
        disabled.remember(&location("a"), &entry("", i64::MAX));
        assert_eq!(disabled.find(&location("a")), None);
    }
}
