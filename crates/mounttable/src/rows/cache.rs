//! A short-lived cache of hot rows. Concurrent readers of the same row share one read.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{self, Clock};
use crate::error::Result;
use crate::node::Node;
use crate::node_name::NodeName;

/// The default number of cached rows.
const ROWS_CACHED: usize = 131_072;
/// The maximum number of servers in all cached rows; beyond it, rows are not cached.
const SERVERS_CACHED_MAX: usize = 1_000_000;
/// How long a row is served by default after it was read.
const ROW_FRESH: Duration = Duration::from_secs(1);
/// How long a node is assumed to have children after some were seen.
const CHILDREN_SEEN: Duration = Duration::from_secs(10);
/// Number of eviction counters, which are shared by rows.
const COUNTERS: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    pub rows: usize,
    /// How long a row is served after it was read.
    pub fresh: Duration,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { rows: ROWS_CACHED, fresh: ROW_FRESH }
    }
}

pub struct Cache {
    slots: quick_cache::sync::Cache<NodeName, Arc<Slot>>,
    fresh_micros: i64,
    clock: Clock,
    /// Orders arrivals and reads, so that no caller gets a read that started before it.
    turn: AtomicU64,
    reads: AtomicU64,
    hasher: RandomState,
    evictions: Box<[AtomicU64]>,
    servers: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Slot {
    read: Mutex<Option<Read>>,
    /// When children were last seen.
    children_micros: Mutex<Option<i64>>,
    /// Held during a read of the row.
    reading: tokio::sync::Mutex<()>,
}

/// The result of a read.
struct Read {
    node: Option<Arc<Node>>,
    at_micros: i64,
    turn: u64,
    _share: Share,
}

/// The number of servers of a cached node, released when it is dropped.
struct Share {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl Cache {
    pub fn new(options: CacheOptions, clock: Clock) -> Cache {
        Cache {
            slots: quick_cache::sync::Cache::new(options.rows),
            fresh_micros: clock::micros(options.fresh),
            clock,
            turn: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            hasher: RandomState::new(),
            evictions: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            servers: Arc::default(),
        }
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the node if it is fresh, or else the result of `read`. A missing row is
    /// returned to all callers that wait for the same read, but is not cached.
    pub async fn get<F>(
        &self,
        name: &NodeName,
        read: impl FnOnce() -> F,
    ) -> Result<Option<Arc<Node>>>
    where
        F: Future<Output = Result<Option<Node>>>,
    {
        let slot = self.slot(name);
        if let Some(node) = self.fresh(&slot) {
            return Ok(Some(node));
        }
        let arrived = self.turn.fetch_add(1, Ordering::SeqCst);
        let _reading = slot.reading.lock().await;
        if let Some(node) = self.fresh(&slot) {
            return Ok(Some(node));
        }
        if let Some(read) = &*slot.read.lock()
            && read.turn > arrived
        {
            return Ok(read.node.clone());
        }
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        let at_micros = self.clock.now();
        self.reads.fetch_add(1, Ordering::Relaxed);
        let node = read().await?.map(Arc::new);
        self.store(&slot, node.clone(), at_micros, turn);
        Ok(node)
    }

    /// Returns whether the node has children, using `read` if none were seen recently.
    pub async fn has_children<F>(&self, name: &NodeName, read: impl FnOnce() -> F) -> Result<bool>
    where
        F: Future<Output = Result<bool>>,
    {
        let slot = self.slot(name);
        if self.saw_children(&slot) {
            return Ok(true);
        }
        let _reading = slot.reading.lock().await;
        if self.saw_children(&slot) {
            return Ok(true);
        }
        let at_micros = self.clock.now();
        let has_children = read().await?;
        if has_children {
            *slot.children_micros.lock() = Some(at_micros);
        }
        Ok(has_children)
    }

    fn slot(&self, name: &NodeName) -> Arc<Slot> {
        let found = self.slots.get_or_insert_with(name, || Ok::<_, Infallible>(Arc::default()));
        let Ok(slot) = found;
        slot
    }

    fn saw_children(&self, slot: &Slot) -> bool {
        let seen = *slot.children_micros.lock();
        let age = |at: i64| self.clock.now() - at;
        seen.is_some_and(|at| (0..clock::micros(CHILDREN_SEEN)).contains(&age(at)))
    }

    /// Returns the node as this process last read or wrote it, however long ago, and
    /// the time of that. Sufficient for a change that checks the version anyway.
    pub fn last(&self, name: &NodeName) -> Option<(Arc<Node>, i64)> {
        let slot = self.slots.get(name)?;
        let read = slot.read.lock();
        let read = read.as_ref()?;
        Some((read.node.clone()?, read.at_micros))
    }

    /// Evicts a row. Reads in progress do not insert it again.
    pub fn evict(&self, name: &NodeName) {
        self.counter(name).fetch_add(1, Ordering::SeqCst);
        self.slots.remove(name);
    }

    /// Returns how often this row, or one that shares its counter, was evicted.
    pub fn evictions(&self, name: &NodeName) -> u64 {
        self.counter(name).load(Ordering::SeqCst)
    }

    fn counter(&self, name: &NodeName) -> &AtomicU64 {
        &self.evictions[self.hasher.hash_one(name) as usize % COUNTERS]
    }

    /// Inserts a node that this process has just written, unless the row was evicted
    /// more often than `evictions`, because it was changed again then.
    pub fn put(&self, node: Node, at_micros: i64, evictions: u64) {
        let slot = Arc::new(Slot::default());
        let name = node.name.clone();
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        self.store(&slot, Some(Arc::new(node)), at_micros, turn);
        self.slots.insert(name.clone(), slot);
        // An eviction increments the counter before it removes the entry, so either it
        // sees this entry or this check sees the counter.
        if self.evictions(&name) != evictions {
            self.slots.remove(&name);
        }
    }

    fn fresh(&self, slot: &Slot) -> Option<Arc<Node>> {
        let read = slot.read.lock();
        let read = read.as_ref()?;
        let age = self.clock.now() - read.at_micros;
        if (0..self.fresh_micros).contains(&age) { read.node.clone() } else { None }
    }

    fn store(&self, slot: &Slot, node: Option<Arc<Node>>, at_micros: i64, turn: u64) {
        let own = node.as_ref().map_or(0, |node| node.servers.len());
        let before = self.servers.fetch_add(own, Ordering::Relaxed);
        let share = Share { all: self.servers.clone(), own };
        let read = Read { node, at_micros, turn, _share: share };
        // Dropped after the lock is released, because it may be large.
        let _old = std::mem::replace(
            &mut *slot.read.lock(),
            (before + own <= SERVERS_CACHED_MAX).then_some(read),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use tokio::task::JoinSet;

    async fn read(cache: &Cache, name: &str, count: &AtomicU32, found: bool) -> bool {
        let key = NodeName::parse(name).unwrap();
        let fetch = || async {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(found.then(|| Node::sample(name)))
        };
        cache.get(&key, fetch).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn concurrent_readers_share_one_read_and_rows_stay_fresh_for_a_second() {
        let clock = Clock::manual(0);
        let cache = Arc::new(Cache::new(CacheOptions::default(), clock.clone()));
        let count = Arc::new(AtomicU32::new(0));
        let mut reads = Vec::new();
        for _ in 0..10 {
            for name in ["a", "b"] {
                let mut readers = JoinSet::new();
                for _ in 0..5 {
                    let (cache, count) = (cache.clone(), count.clone());
                    readers.spawn(async move { assert!(read(&cache, name, &count, true).await) });
                }
                readers.join_all().await;
            }
            reads.push(count.swap(0, Ordering::SeqCst));
            clock.advance(Duration::from_millis(250));
        }
        assert_eq!(reads, [2, 0, 0, 0, 2, 0, 0, 0, 2, 0]);
    }

    #[tokio::test]
    async fn a_missing_row_is_shared_by_waiting_readers_and_not_cached() {
        let cache = Arc::new(Cache::new(CacheOptions::default(), Clock::manual(0)));
        let count = Arc::new(AtomicU32::new(0));
        let mut readers = JoinSet::new();
        for _ in 0..50 {
            let (cache, count) = (cache.clone(), count.clone());
            readers.spawn(async move { assert!(!read(&cache, "a", &count, false).await) });
        }
        readers.join_all().await;
        assert!(count.load(Ordering::SeqCst) <= 2, "{count:?}");
        let before = count.load(Ordering::SeqCst);
        read(&cache, "a", &count, false).await;
        assert_eq!(count.load(Ordering::SeqCst), before + 1);
    }

    #[tokio::test]
    async fn a_written_row_is_cached_unless_it_was_evicted_since() {
        let cache = Cache::new(CacheOptions::default(), Clock::manual(0));
        let count = AtomicU32::new(0);
        let name = NodeName::parse("a").unwrap();
        cache.put(Node::sample("a"), 0, cache.evictions(&name));
        read(&cache, "a", &count, true).await;
        assert_eq!(count.load(Ordering::SeqCst), 0);
        let before = cache.evictions(&name);
        cache.evict(&name);
        cache.put(Node::sample("a"), 0, before);
        read(&cache, "a", &count, true).await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_stale_row_is_available_for_changes() {
        let clock = Clock::manual(0);
        let cache = Cache::new(CacheOptions::default(), clock.clone());
        let (count, name) = (AtomicU32::new(0), NodeName::parse("a").unwrap());
        assert!(cache.last(&name).is_none());
        read(&cache, "a", &count, true).await;
        clock.advance(Duration::from_secs(60));
        assert_eq!(cache.last(&name).map(|(_, at_micros)| at_micros), Some(0));
        cache.evict(&name);
        assert!(cache.last(&name).is_none());
    }

    #[tokio::test]
    async fn the_presence_of_children_is_cached_and_their_absence_is_not() {
        let clock = Clock::manual(0);
        let cache = Cache::new(CacheOptions::default(), clock.clone());
        let (count, name) = (AtomicU32::new(0), NodeName::parse("a").unwrap());
        let has_children = async |found: bool| {
            let read = || async {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(found)
            };
            cache.has_children(&name, read).await.unwrap()
        };
        assert!(
            !has_children(false).await && has_children(true).await && has_children(false).await
        );
        clock.advance(CHILDREN_SEEN);
        assert!(!has_children(false).await);
        assert!(has_children(true).await);
        cache.evict(&name);
        assert!(!has_children(false).await);
        assert_eq!(count.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn an_evicted_row_is_read_again() {
        let cache = Cache::new(CacheOptions::default(), Clock::manual(0));
        let count = AtomicU32::new(0);
        read(&cache, "a", &count, true).await;
        cache.evict(&NodeName::parse("a").unwrap());
        read(&cache, "a", &count, true).await;
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
