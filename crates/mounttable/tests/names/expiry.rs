//! Deadlines of servers, and the removal of expired servers and empty nodes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stele_mounttable::{Mount, Options};
use tokio::task::JoinSet;

use crate::with_both_graces;
use crate::world::{Grace, ReadOnly, World, Writes, alice, root, sound};

with_both_graces! {
    a_mount_ends_at_its_deadline,
    a_refresh_extends_or_shortens_a_mount,
    only_refreshed_mounts_are_left_after_the_others_are_visited,
    a_hundred_deep_mounts_expire_under_two_hundred_resolves,
    a_sweep_removes_what_nobody_visits,
}

const MINUTE: Duration = Duration::from_secs(60);

async fn a_mount_ends_at_its_deadline(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b", "/h:1", 60).await.unwrap();
    world.clock.advance(MINUTE);
    assert_eq!(world.names(&alice(), "a/b").await, ["/h:1"]);
    world.clock.advance(Duration::from_millis(1));
    world.assert_gone(&alice(), "a/b").await;
}

async fn a_refresh_extends_or_shortens_a_mount(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a", "/h:1", 60).await.unwrap();
    world.clock.advance(MINUTE / 2);
    world.mount(&root(), "a", "/h:1", 60).await.unwrap();
    world.clock.advance(MINUTE / 2 + Duration::from_secs(20));
    assert_eq!(world.names(&alice(), "a").await, ["/h:1"]);
    world.mount(&root(), "a", "/h:1", 5).await.unwrap();
    world.mount(&root(), "a", "/h:2", 60).await.unwrap();
    world.clock.advance(Duration::from_secs(6));
    assert_eq!(world.names(&alice(), "a").await, ["/h:2"]);
}

async fn only_refreshed_mounts_are_left_after_the_others_are_visited(grace: Grace) {
    let world = World::open(grace).await;
    let names = ["a1/b1", "a1/b2", "a2/b1", "a2/b2/b3"];
    for name in names {
        world.mount(&root(), name, "/h:1", 600).await.unwrap();
    }
    world.clock.advance(5 * MINUTE);
    for name in names {
        assert_eq!(world.names(&root(), name).await, ["/h:1"]);
    }
    world.mount(&root(), "a1/b1", "/h:1", 600).await.unwrap();
    world.clock.advance(6 * MINUTE);
    for name in &names[1..] {
        world.assert_gone(&root(), name).await;
    }
    assert_eq!(world.found(&root(), "", "...").await, ["", "a1", "a1/b1"]);
    assert_eq!(world.nodes().await, 3);
}

async fn a_hundred_deep_mounts_expire_under_two_hundred_resolves(grace: Grace) {
    let world = World::open(grace).await;
    let name = |number: usize| format!("a/b/c/d/e/{}/{number}", number % 10);
    for number in 0..100 {
        world.mount(&root(), &name(number), "/h:1", 60).await.unwrap();
    }
    world.clock.advance(2 * MINUTE);
    let mut resolves = JoinSet::new();
    for number in 0..200 {
        let (table, name) = (world.table.clone(), name(number / 2));
        resolves.spawn(async move { table.resolve_step(&root().call(), &name).await });
    }
    for resolved in resolves.join_all().await {
        let error = resolved.unwrap_err();
        assert_eq!(error.kind(), "NoSuchName", "{error}");
    }
    assert_eq!(world.nodes().await, 1);
}

async fn a_sweep_removes_what_nobody_visits(grace: Grace) {
    let world = World::open(grace).await;
    for number in 0..20 {
        world.mount(&root(), &format!("gone/{number}/x"), "/h:1", 60).await.unwrap();
    }
    world.mount(&root(), "stays/x", "/h:1", 3600).await.unwrap();
    world.mount(&root(), "stays/x", "/h:2", 60).await.unwrap();
    world.clock.advance(2 * MINUTE);
    assert!(world.table.sweep(Duration::ZERO).await.unwrap() >= 21);
    let report = sound(&world.table).await;
    assert_eq!((report.nodes, report.servers), (3, 1));
    assert_eq!(world.table.sweep(Duration::ZERO).await.unwrap(), 0);
    // A young node is not removed by other operations.
    let mount = Mount::new("/h:1", 1);
    world.table.mount(&root().call(), "young", &mount).await.unwrap();
    world.clock.advance(Duration::from_secs(2));
    world.assert_gone(&root(), "young").await;
    let nodes = sound(&world.table).await.nodes;
    assert_eq!(nodes, if grace == Grace::None { 3 } else { 4 });
}

/// Creates mounts with a live and an expired server, mounts with only expired ones, and
/// a node that is due for removal.
async fn partly_expired() -> World {
    let world = World::in_process(Grace::None).await;
    world.mount(&root(), "svc/q", "/alive:1", 3600).await.unwrap();
    world.mount(&root(), "svc/q", "/dead:1", 60).await.unwrap();
    world.mount(&root(), "gone/x", "/dead:1", 60).await.unwrap();
    world.clock.advance(2 * MINUTE);
    world
}

#[tokio::test]
async fn names_are_read_while_expired_servers_cannot_be_removed() {
    let world = partly_expired().await;
    for writes in [Writes::Fail, Writes::Hang] {
        let read_only = ReadOnly::new(&world.rows, writes);
        let clearing_wait = match writes {
            Writes::Fail => Duration::from_secs(3600),
            Writes::Hang => Duration::from_millis(10),
        };
        let options = Options { clearing_wait, ..world.options() };
        let table = world.rows.server_with(&read_only.client, options);
        let call = alice().call();
        for _ in 0..20 {
            let found = table.resolve_step(&call, "svc/q").await.unwrap();
            assert_eq!(found.names(), ["/alive:1"]);
            let gone = table.resolve_step(&call, "gone/x").await.unwrap_err();
            assert_eq!(gone.kind(), "NoSuchName", "{gone}");
            assert!(table.permissions(&call, "gone/x").await.is_ok());
            let missing = table.resolve_step(&call, "svc/none").await.unwrap_err();
            assert_eq!(missing.kind(), "NoSuchName", "{missing}");
        }
        // Removal was tried, but not by every reader.
        let refused = read_only.refused.load(Ordering::SeqCst);
        assert!((1..60).contains(&refused), "{writes:?}: {refused}");
    }
    // When rows can be written again, the next reader removes what is due.
    assert_eq!(world.names(&alice(), "svc/q").await, ["/alive:1"]);
    world.assert_gone(&alice(), "gone/x").await;
    let report = sound(&world.table).await;
    assert_eq!((report.nodes, report.servers), (3, 1));
}
