//! The client's cache: the servers found for a name.

use std::iter::successors;

use super::Location;
use crate::clock::Clock;
use crate::name;
use crate::node::Server;
use crate::tree::Entry;

const ENTRIES_MAX: usize = 4000;

pub struct Cache {
    enabled: bool,
    clock: Clock,
    /// By the full name of the mount point.
    entries: quick_cache::sync::Cache<String, Entry>,
}

impl Cache {
    pub fn new(enabled: bool) -> Cache {
        let entries = quick_cache::sync::Cache::new(ENTRIES_MAX);
        Cache { enabled, clock: Clock::system(), entries }
    }

    /// Returns the entry of the longest cached prefix of a name. An entry with an
    /// expired server is not used at all.
    pub fn find(&self, location: &Location) -> Option<Entry> {
        let full = location.full();
        let now = self.clock.now();
        let fresh = |entry: &Entry| {
            entry.servers.iter().all(|server: &Server| server.deadline_micros >= now)
        };
        prefixes(&full, location).find_map(|prefix| {
            let entry = self.entries.get(prefix).filter(fresh)?;
            let rest = full[prefix.len()..].trim_start_matches('/').to_string();
            Some(Entry { name: rest, ..entry })
        })
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
        self.entries.insert(mount_point, Entry { name: String::new(), ..entry.clone() });
    }

    /// Removes the entries of all prefixes of a name.
    pub fn forget(&self, location: &Location) {
        for prefix in prefixes(&location.full(), location) {
            self.entries.remove(prefix);
        }
    }
}

/// Returns the full name of a location and its prefixes down to the server, the longest
/// first.
fn prefixes<'f>(full: &'f str, location: &Location) -> impl Iterator<Item = &'f str> {
    let server_bytes = location.server.len();
    successors(Some(full), move |prefix| {
        let cut = prefix.rfind('/').filter(|cut| *cut > server_bytes)?;
        Some(&prefix[..cut])
    })
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
        for number in 0..=2 * ENTRIES_MAX {
            let newest = location(&number.to_string());
            cache.remember(&newest, &entry("", i64::MAX));
            assert!(cache.find(&newest).is_some(), "{number}");
        }
        let left = cache.entries.len();
        assert!((ENTRIES_MAX / 2..=ENTRIES_MAX + ENTRIES_MAX / 10).contains(&left), "{left}");
        let disabled = Cache::new(false);
        disabled.remember(&location("a"), &entry("", i64::MAX));
        assert_eq!(disabled.find(&location("a")), None);
    }
}
