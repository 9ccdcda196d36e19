//! Guarantees of rows: one winner among changes of the same version, one read of hot
//! rows, and no leftovers of workers on overlapping trees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_mounttable::access::Permissions;
use stele_mounttable::clock::random;
use stele_mounttable::node::{Flags, Node, Server};
use stele_mounttable::rows::{Limits, NewChild, NodeRows};
use stele_mounttable::{Error, Mount, NodeName};
use tokio::task::JoinSet;

use crate::with_both_graces;
use crate::world::{Counted, Grace, World, alice, root, sound};

with_both_graces! {
    only_the_first_of_four_changes_of_one_version_succeeds,
    a_thousand_resolves_read_each_row_once_a_second,
    workers_on_overlapping_trees_leave_nothing,
    mounters_and_deleters_leave_nothing,
    a_server_with_a_stale_cache_overwrites_nothing,
}

async fn change(rows: &NodeRows, node: &Arc<Node>, which: usize) -> Result<(), Error> {
    let server = Server {
        address: "/h:1".into(),
        deadline_micros: i64::MAX / 1_000_000 * 1000,
        flags: Flags::default(),
    };
    let child = NewChild {
        element: "child",
        permissions: Permissions::open(),
        creator: "root".into(),
        limits: Limits::NONE,
        sticky: false,
    };
    match which {
        0 => rows.delete(node).await,
        1 => {
            let turn = rows.turn(&node.name).await;
            rows.create_child(turn, node, child).await.map(drop)
        }
        2 => rows.mount(node, server, false, Limits::NONE).await,
        _ => rows.set_permissions(node, &Permissions::open()).await.map(drop),
    }
}

async fn only_the_first_of_four_changes_of_one_version_succeeds(grace: Grace) {
    let world = World::open(grace).await;
    let name = NodeName::parse("node").unwrap();
    for round in 0..100 {
        world.mount(&root(), "node", "/h:9", 0).await.unwrap();
        let snapshot = world.table.rows().get_now(&name).await.unwrap().unwrap();
        let mut order = [0, 1, 2, 3];
        for at in (1..order.len()).rev() {
            order.swap(at, (random() % (at as u64 + 1)) as usize);
        }
        for (at, which) in order.into_iter().enumerate() {
            let changed = change(world.table.rows(), &snapshot, which).await;
            match at {
                0 => changed.unwrap_or_else(|error| panic!("round {round}, {which}: {error}")),
                _ => assert!(matches!(changed, Err(Error::Conflict { .. })), "{round} {changed:?}"),
            }
        }
        world.delete(&root(), "node", true).await.unwrap();
    }
    assert_eq!(world.nodes().await, 1);
}

async fn a_thousand_resolves_read_each_row_once_a_second(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b/c", "/h:1", 0).await.unwrap();
    world.clock.advance(Duration::from_secs(5));
    for _ in 0..3 {
        let before = world.table.rows().cache_reads();
        let mut resolves = JoinSet::new();
        for _ in 0..1000 {
            let table = world.table.clone();
            resolves.spawn(async move {
                table.resolve_step(&alice().call(), "a/b/c").await.unwrap();
            });
        }
        resolves.join_all().await;
        assert_eq!(world.table.rows().cache_reads() - before, 4);
        world.clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_refresh_is_one_conditional_mutation_and_no_read() {
    let world = World::in_process(Grace::Minute).await;
    let counted = Counted::new(&world.rows);
    let table = world.rows.server_with(&counted.client, world.options());
    for name in ["a/b/c", "a/b/d"] {
        table.mount(&root().call(), name, &Mount::new("/h:1", 0)).await.unwrap();
        table.resolve_step(&root().call(), name).await.unwrap();
    }
    for ttl in [60, 30] {
        world.clock.advance(Duration::from_secs(20));
        // Other callers keep the nodes above in the cache.
        table.resolve_step(&root().call(), "a/b/d").await.unwrap();
        counted.take();
        table.mount(&root().call(), "a/b/c", &Mount::new("/h:1", ttl)).await.unwrap();
        assert_eq!(counted.take(), BTreeMap::from([("CheckAndMutateRow".to_string(), 1)]));
    }
    // Changes of another server are not overwritten.
    world.mount(&root(), "a/b/c", "/h:2", 0).await.unwrap();
    table.mount(&root().call(), "a/b/c", &Mount::new("/h:1", 10)).await.unwrap();
    let entry = table.resolve_step(&root().call(), "a/b/c").await.unwrap();
    assert_eq!(entry.servers.len(), 2);
    assert_eq!(world.nodes().await, 5);
}

#[tokio::test]
async fn a_thousand_resolves_are_one_storage_call_per_row() {
    let world = World::in_process(Grace::Minute).await;
    world.mount(&root(), "a/b/c", "/h:1", 0).await.unwrap();
    let counted = Counted::new(&world.rows);
    let table = world.rows.server_with(&counted.client, world.options());
    for _ in 0..3 {
        let mut resolves = JoinSet::new();
        for _ in 0..1000 {
            let table = table.clone();
            resolves.spawn(async move {
                table.resolve_step(&alice().call(), "a/b/c").await.unwrap();
            });
        }
        resolves.join_all().await;
        assert_eq!(counted.take(), BTreeMap::from([("ReadRows".to_string(), 4)]));
        world.clock.advance(Duration::from_secs(1));
    }
}

async fn workers_on_overlapping_trees_leave_nothing(grace: Grace) {
    let world = World::open(grace).await;
    world.pass_grace();
    let mut workers = JoinSet::new();
    for worker in 0..15 {
        let table = world.table.clone();
        workers.spawn(async move {
            let (call, server) = (root().call(), format!("/h:{worker}"));
            for round in 0..25 {
                let name = format!("{}/{}/{worker}", round % 5, worker % 3);
                table.mount(&call, &name, &Mount::new(&server, 0)).await.unwrap();
                let entry = table.resolve_step(&call, &name).await.unwrap();
                assert_eq!(entry.servers[0].address, server);
                table.unmount(&call, &name, &server).await.unwrap();
            }
        });
    }
    workers.join_all().await;
    assert_eq!(empty(&world).await, 1);
}

async fn mounters_and_deleters_leave_nothing(grace: Grace) {
    let world = World::open(grace).await;
    let mut workers = JoinSet::new();
    for worker in 0..6 {
        let table = world.table.clone();
        workers.spawn(async move {
            let call = root().call();
            for round in 0..20 {
                let name = match (worker + round) % 2 {
                    0 => "shallow/x".to_string(),
                    _ => format!("1/2/3/4/5/6/7/8/{worker}"),
                };
                if worker % 2 == 0 {
                    table.mount(&call, &name, &Mount::new("/h:1", 0)).await.unwrap();
                } else {
                    let top = name.split('/').next().unwrap();
                    table.delete(&call, top, true).await.unwrap();
                }
            }
        });
    }
    workers.join_all().await;
    for name in ["shallow", "1"] {
        world.delete(&root(), name, true).await.unwrap();
    }
    assert_eq!(world.nodes().await, 1);
}

async fn a_server_with_a_stale_cache_overwrites_nothing(grace: Grace) {
    let world = World::open(grace).await;
    let other = world.another_server();
    // The clock stands still, so both caches stay fresh.
    world.mount(&root(), "a", "/h:1", 0).await.unwrap();
    other.resolve_step(&root().call(), "a").await.unwrap();
    world.mount(&root(), "a", "/h:2", 0).await.unwrap();
    other.mount(&root().call(), "a", &Mount::new("/h:3", 0)).await.unwrap();
    world.unmount(&root(), "a", "/h:1").await.unwrap();
    other.mount(&root().call(), "a/b", &Mount::new("/h:4", 0)).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.names(&root(), "a").await, ["/h:2", "/h:3"]);
    assert_eq!(sound(&other).await.nodes, 3);
}

/// Returns the number of nodes left after the grace has passed and everything was
/// visited.
async fn empty(world: &World) -> u64 {
    world.pass_grace();
    world.table.sweep(Duration::ZERO).await.unwrap();
    world.nodes().await
}
