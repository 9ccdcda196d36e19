//! Watch: the current state, then each change, of this server and of others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_mounttable::access::{ADMIN, Permissions};
use stele_mounttable::clock::Clock;
use stele_mounttable::rows::Limits;
use stele_mounttable::{Change, FirstNodes, KnownNode, Mount, Mounttable, WatchEvent};
use tokio::sync::mpsc::{self, Receiver};

use crate::world::{Grace, Person, Rows, World, alice, bob, options, root};

/// Longer than any step takes; reached only when something hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A watch in progress, and what it has reported so far.
struct Watcher {
    answers: Receiver<WatchEvent>,
    /// The last change of each node.
    nodes: BTreeMap<String, Change>,
}

impl Watcher {
    fn start(table: &Arc<Mounttable>, who: &Person, name: &str, known: Vec<KnownNode>) -> Watcher {
        let (out, answers) = mpsc::channel(16);
        let (table, call, name) = (table.clone(), who.call(), name.to_string());
        tokio::spawn(async move { table.watch(&call, &name, known, &out).await.unwrap() });
        Watcher { answers, nodes: BTreeMap::new() }
    }

    /// Returns the next event.
    async fn next(&mut self) -> WatchEvent {
        let next = tokio::time::timeout(TIMEOUT, self.answers.recv()).await;
        let seen = next.expect("an event arrives in time").expect("the watch is open");
        if let WatchEvent::Change(change) = &seen {
            let name = change.node.name.clone();
            if let Some(before) = self.nodes.get(&name)
                && before.node.id == change.node.id
            {
                let version = |known: &KnownNode| u32::from_str_radix(&known.version, 16).unwrap();
                let step = version(&change.node).wrapping_sub(version(&before.node));
                assert!(step < u32::MAX / 2, "{name} decreased");
            }
            self.nodes.insert(name, (**change).clone());
        }
        seen
    }

    /// Returns the names reported until the initial state is complete.
    async fn sync(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match self.next().await {
                WatchEvent::Synced => break,
                WatchEvent::Change(change) => names.push(change.node.name),
            }
        }
        names.sort();
        names
    }

    /// Waits until a node has an expected state.
    async fn until(&mut self, name: &str, is_so: impl Fn(&Change) -> bool) {
        while !self.nodes.get(name).is_some_and(&is_so) {
            self.next().await;
        }
    }

    async fn until_mounted(&mut self, name: &str, server: &str) {
        let has =
            |change: &Change| change.entry.servers.iter().any(|mounted| mounted.address == server);
        self.until(name, has).await;
    }

    async fn until_deleted(&mut self, name: &str) {
        self.until(name, |change| change.deleted).await;
    }
}

#[tokio::test]
async fn the_current_state_is_reported_and_then_every_change() {
    let world = World::open(Grace::None).await;
    world.mount(&root(), "a/b/c", "/h:1", 0).await.unwrap();
    world.mount(&root(), "other", "/h:1", 0).await.unwrap();
    let mut watcher = Watcher::start(&world.table, &alice(), "a", vec![]);
    assert_eq!(watcher.sync().await, ["a", "a/b", "a/b/c"]);
    assert_eq!(watcher.nodes["a"].children, ["b"]);
    world.mount(&root(), "a/b/d", "/h:2", 0).await.unwrap();
    watcher.until_mounted("a/b/d", "/h:2").await;
    world.mount(&root(), "a/b/d", "/h:3", 0).await.unwrap();
    watcher.until_mounted("a/b/d", "/h:3").await;
    world.unmount(&root(), "a/b/d", "").await.unwrap();
    watcher.until_deleted("a/b/d").await;
    world.delete(&root(), "a", true).await.unwrap();
    watcher.until_deleted("a").await;
    watcher.until_deleted("a/b/c").await;
    world.mount(&root(), "a", "/h:4", 0).await.unwrap();
    watcher.until_mounted("a", "/h:4").await;
    assert!(!watcher.nodes.contains_key("other"));
}

#[tokio::test]
async fn changes_of_another_server_are_found() {
    let world = World::open(Grace::None).await;
    let other = world.another_server();
    let mut watcher = Watcher::start(&world.table, &alice(), "", vec![]);
    assert_eq!(watcher.sync().await, [""]);
    let call = root().call();
    other.mount(&call, "x/y", &Mount::new("/h:1", 0)).await.unwrap();
    watcher.until_mounted("x/y", "/h:1").await;
    other.mount(&call, "x/y", &Mount::new("/h:2", 0)).await.unwrap();
    watcher.until_mounted("x/y", "/h:2").await;
    other.delete(&call, "x", true).await.unwrap();
    watcher.until_deleted("x/y").await;
    watcher.until_deleted("x").await;
    other.mount(&call, "x/y", &Mount::new("/h:3", 0)).await.unwrap();
    watcher.until_mounted("x/y", "/h:3").await;
}

#[tokio::test]
async fn a_returning_watcher_receives_only_differences() {
    let world = World::open(Grace::None).await;
    for name in ["a/1", "a/2", "a/3"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    let mut watcher = Watcher::start(&world.table, &alice(), "a", vec![]);
    watcher.sync().await;
    let known: Vec<_> = watcher.nodes.values().map(|change| change.node.clone()).collect();
    drop(watcher);
    let mut again = Watcher::start(&world.another_server(), &alice(), "a", known.clone());
    assert!(again.sync().await.is_empty());
    drop(again);
    world.mount(&root(), "a/2", "/h:2", 0).await.unwrap();
    world.delete(&root(), "a/3", false).await.unwrap();
    world.mount(&root(), "a/4", "/h:1", 0).await.unwrap();
    let mut again = Watcher::start(&world.another_server(), &alice(), "a", known);
    assert_eq!(again.sync().await, ["a", "a/2", "a/3", "a/4"]);
    assert!(again.nodes["a/3"].deleted && !again.nodes["a/2"].deleted);
}

#[tokio::test]
async fn an_expired_server_is_reported() {
    let rows = Rows::new().await;
    let clock = Clock::system();
    let table = rows.server(options(&clock, Grace::Minute, Limits::default()));
    table.set_up(&FirstNodes::default()).await.unwrap();
    let call = root().call();
    table.mount(&call, "a", &Mount::new("/h:1", 1)).await.unwrap();
    table.mount(&call, "a", &Mount::new("/h:2", 0)).await.unwrap();
    let mut watcher = Watcher::start(&table, &alice(), "a", vec![]);
    watcher.sync().await;
    let before = watcher.nodes["a"].clone();
    assert_eq!(before.entry.servers.len(), 2);
    watcher.until("a", |change| change.entry.servers.len() == 1).await;
    // No row has been written.
    assert_eq!(watcher.nodes["a"].node, before.node);
}

#[tokio::test]
async fn a_watcher_sees_only_permitted_nodes_and_may_watch_missing_ones() {
    let world = World::open(Grace::None).await;
    let bobs = Permissions::default().with(ADMIN, ["bob"]);
    world.table.set_permissions(&bob().call(), "bobs/x", &bobs, "").await.unwrap();
    let mut watcher = Watcher::start(&world.table, &alice(), "", vec![]);
    assert_eq!(watcher.sync().await, ["", "bobs"]);
    let mut early = Watcher::start(&world.table, &alice(), "not/yet", vec![]);
    assert!(early.sync().await.is_empty());
    world.mount(&root(), "not/yet", "/h:1", 0).await.unwrap();
    early.until_mounted("not/yet", "/h:1").await;
    let (out, _answers) = mpsc::channel(1);
    let refused = world.table.watch(&alice().call(), "bobs/x", vec![], &out).await;
    crate::world::assert_refused(refused);
}
