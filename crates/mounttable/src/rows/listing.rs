//! A cache of the elements that a node refers to, so that adding a child does not have
//! to read all children to find older references to it.
//!
//! The id of a reference is the version that the node had before, so the references
//! that were added since a version are a range of columns. Elements are stored as
//! hashes: a collision costs only a read. References that other processes remove stay
//! cached until their element is looked up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::Weighter;
use stele_bigtable_client::{Filter, Row};

use super::NodeRows;
use crate::error::{Error, Result};
use crate::node::{CHILDREN, METADATA, Node, VERSION, Version, parse_reference};
use crate::node_name::NodeName;

/// The maximum number of cached references of all nodes, about 20 bytes each.
const REFERENCES_MAX: u64 = 2_000_000;
/// The expected number of cached nodes.
const NODES: usize = 4096;
/// The weight of a node without references.
const WEIGHT_MIN: u64 = 8;

pub struct Listings {
    kept: quick_cache::sync::Cache<NodeName, Arc<Listing>, References>,
    hasher: RandomState,
}

/// All references that a node had at a version, and perhaps some more.
struct Listing {
    seen: Mutex<Seen>,
    /// The weight in the cache.
    weight: u64,
}

struct Seen {
    /// The id of the node: another one may have taken its name.
    id: String,
    version: Version,
    elements: HashMap<u64, Holder>,
}

/// The references to an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    One(Version),
    /// Several, or one whose id is unknown.
    Many,
}

#[derive(Clone)]
struct References;

impl Weighter<NodeName, Arc<Listing>> for References {
    fn weight(&self, _: &NodeName, listing: &Arc<Listing>) -> u64 {
        listing.weight
    }
}

impl Default for Listings {
    fn default() -> Listings {
        let kept = quick_cache::sync::Cache::with_weighter(NODES, REFERENCES_MAX, References);
        Listings { kept, hasher: RandomState::new() }
    }
}

impl Listings {
    fn hash(&self, element: &str) -> u64 {
        self.hasher.hash_one(element)
    }

    fn insert(&self, name: &NodeName, seen: Seen) -> Arc<Listing> {
        let weight = (seen.elements.len() as u64).max(WEIGHT_MIN);
        let listing = Arc::new(Listing { seen: Mutex::new(seen), weight });
        self.kept.insert(name.clone(), listing.clone());
        listing
    }

    /// Adds a reference that was added to a node at `version`, which now has the next
    /// version.
    pub fn added(&self, name: &NodeName, version: Version, id: &str, element: &str) {
        let Some(listing) = self.kept.get(name) else { return };
        let mut seen = listing.seen.lock();
        if seen.version != version {
            return;
        }
        seen.version = version.next();
        seen.add(self.hash(element), id);
        // The cache weighs entries on insertion, not while they grow.
        if seen.elements.len() as u64 > 2 * listing.weight {
            let elements = std::mem::take(&mut seen.elements);
            self.insert(name, Seen { id: seen.id.clone(), version: seen.version, elements });
        }
    }

    /// Removes a reference.
    pub fn removed(&self, name: &NodeName, column: &[u8]) {
        let (Some(listing), Some((id, element))) = (self.kept.get(name), parse_reference(column))
        else {
            return;
        };
        let only = Version::parse(id.as_bytes()).map(Holder::One);
        let (hash, mut seen) = (self.hash(element), listing.seen.lock());
        if only.is_some() && seen.elements.get(&hash).copied() == only {
            seen.elements.remove(&hash);
        }
    }
}

impl Seen {
    fn of(node: &Node) -> Seen {
        Seen { id: node.id.clone(), version: node.version, elements: HashMap::new() }
    }

    fn add(&mut self, element: u64, id: &str) {
        let holder = Version::parse(id.as_bytes()).map_or(Holder::Many, Holder::One);
        match self.elements.entry(element) {
            Entry::Vacant(vacant) => drop(vacant.insert(holder)),
            Entry::Occupied(mut held) if *held.get() != holder => {
                held.insert(Holder::Many);
            }
            Entry::Occupied(_) => {}
        }
    }
}

impl NodeRows {
    /// Returns the ids of references to an element at the version at which the node was
    /// read. Returns a conflict if the node has another version by now.
    pub(super) async fn references_to(&self, node: &Node, element: &str) -> Result<Vec<String>> {
        let same_node = |listing: &Arc<Listing>| listing.seen.lock().id == node.id;
        let kept = self.listings.kept.get(&node.name).filter(same_node);
        let since = kept.as_ref().map(|listing| listing.seen.lock().version);
        let listing = match kept.zip(since) {
            Some((listing, since)) if since == node.version => listing,
            Some((listing, since)) if since < node.version => {
                self.catch_up(node, &listing, since).await?;
                listing
            }
            // There is no cached listing, or versions have wrapped around.
            _ => self.list(node).await?,
        };
        let hash = self.listings.hash(element);
        if !listing.seen.lock().elements.contains_key(&hash) {
            return Ok(Vec::new());
        }
        drop(listing);
        // Rare enough to read all references, and to replace the listing.
        let row = self.read_references(node, Bound::Unbounded).await?;
        self.listings.insert(&node.name, self.seen(node, &row));
        let references = row.family(CHILDREN).filter_map(|cell| parse_reference(&cell.qualifier));
        let same = references.filter(|(_, other)| *other == element);
        Ok(same.map(|(id, _)| id.to_string()).collect())
    }

    /// Reads all references of a node.
    async fn list(&self, node: &Node) -> Result<Arc<Listing>> {
        let row = self.read_references(node, Bound::Unbounded).await?;
        Ok(self.listings.insert(&node.name, self.seen(node, &row)))
    }

    /// Adds references that were added since a version.
    async fn catch_up(&self, node: &Node, listing: &Listing, since: Version) -> Result<()> {
        let first = Bound::Included(since.to_string().into());
        let row = self.read_references(node, first).await?;
        let new = self.seen(node, &row);
        let mut seen = listing.seen.lock();
        for (element, holder) in new.elements {
            let other = seen.elements.get(&element).is_some_and(|held| *held != holder);
            seen.elements.insert(element, if other { Holder::Many } else { holder });
        }
        seen.version = node.version;
        Ok(())
    }

    fn seen(&self, node: &Node, row: &Row) -> Seen {
        let mut seen = Seen::of(node);
        for cell in row.family(CHILDREN) {
            if let Some((id, element)) = parse_reference(&cell.qualifier) {
                seen.add(self.listings.hash(element), id);
            }
        }
        seen
    }

    /// Reads the references from a column on, if the node's version is unchanged.
    async fn read_references(&self, node: &Node, first: Bound<Bytes>) -> Result<Row> {
        let columns = Filter::columns(CHILDREN, first, Bound::Unbounded);
        let wanted = Filter::interleave([Filter::column(METADATA, VERSION), columns]);
        let filter = Filter::chain([wanted, Filter::latest()]);
        let row = self.nodes.read_row(node.name.row_key(), Some(filter)).await?;
        let is_same = |row: &Row| {
            row.value(METADATA, VERSION).and_then(|value| Version::parse(value))
                == Some(node.version)
        };
        match row.filter(is_same) {
            Some(row) => Ok(row),
            None => {
                self.cache.evict(&node.name);
                Err(Error::Conflict { name: node.name.to_string() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(listings: &Listings, name: &NodeName, element: &str) -> bool {
        let listing = listings.kept.get(name).unwrap();
        let seen = listing.seen.lock();
        seen.elements.contains_key(&listings.hash(element))
    }

    #[test]
    fn added_references_are_known_and_removed_ones_are_not() {
        let listings = Listings::default();
        let node = Node::sample("a");
        let name = &node.name;
        listings.insert(name, Seen::of(&node));
        let mut version = node.version;
        for number in 0..100 {
            listings.added(name, version, &version.to_string(), &number.to_string());
            version = version.next();
        }
        assert!((0..100).all(|number| knows(&listings, name, &number.to_string())));
        assert!(!knows(&listings, name, "100"));
        assert!(listings.kept.get(name).unwrap().weight > WEIGHT_MIN);
        listings.removed(name, b"000000037");
        listings.removed(name, b"000000069");
        assert!(knows(&listings, name, "7") && knows(&listings, name, "9"));
        listings.removed(name, b"000000077");
        assert!(!knows(&listings, name, "7"));
    }

    #[test]
    fn an_element_with_two_references_is_known_until_it_is_read_again() {
        let listings = Listings::default();
        let node = Node::sample("a");
        listings.insert(&node.name, Seen::of(&node));
        listings.added(&node.name, Version(0), "deadbeef", "x");
        listings.added(&node.name, Version(1), "00000001", "x");
        for column in ["deadbeefx", "00000001x"] {
            listings.removed(&node.name, column.as_bytes());
        }
        assert!(knows(&listings, &node.name, "x"));
    }

    #[test]
    fn a_reference_added_after_unseen_changes_is_left_to_the_next_read() {
        let listings = Listings::default();
        let node = Node::sample("a");
        listings.insert(&node.name, Seen::of(&node));
        listings.added(&node.name, Version(5), "00000005", "x");
        assert!(!knows(&listings, &node.name, "x"));
        assert_eq!(listings.kept.get(&node.name).unwrap().seen.lock().version, Version(0));
    }
}
