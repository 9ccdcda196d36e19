//! The nodes and servers of users are counted exactly, and limited.

use std::time::Duration;

use stele_mounttable::access::{ADMIN, Permissions};
use stele_mounttable::rows::{Kind, Limits};
use stele_mounttable::{Error, FirstNodes};

use crate::with_both_graces;
use crate::world::{Grace, World, alice, bob, root};

with_both_graces! {
    counters_follow_every_step,
    limits_are_exact_and_deletions_free_capacity,
    servers_are_charged_to_the_creator_of_the_node,
}

async fn counters_follow_every_step(grace: Grace) {
    let world = World::open(grace).await;
    let counts = async || {
        (world.count(Kind::Nodes, "alice").await, world.count(Kind::Servers, "alice").await)
    };
    for number in 0..5 {
        world.mount(&alice(), &format!("flat/{number}"), "/h:1", 0).await.unwrap();
        assert_eq!(counts().await, (number + 2, number + 1));
    }
    world.mount(&alice(), "deep/1/2/3/4", "/h:1", 0).await.unwrap();
    assert_eq!(counts().await, (11, 6));
    for port in 2..5 {
        world.mount(&alice(), "deep/1/2/3/4", &format!("/h:{port}"), 120).await.unwrap();
    }
    assert_eq!(counts().await, (11, 9));
    world.mount(&alice(), "deep/1/2/3/4", "/h:4", 100).await.unwrap();
    assert_eq!(counts().await, (11, 9));
    world.pass_grace();
    world.unmount(&alice(), "flat/0", "").await.unwrap();
    assert_eq!(counts().await, (10, 8));
    world.delete(&alice(), "flat/1", false).await.unwrap();
    assert_eq!(counts().await, (9, 7));
    world.unmount(&alice(), "deep/1/2/3/4", "/h:2").await.unwrap();
    assert_eq!(counts().await, (9, 6));
    world.clock.advance(Duration::from_secs(121));
    world.resolve(&alice(), "deep/1/2/3/4").await.unwrap();
    assert_eq!(counts().await, (9, 4));
    world.delete(&alice(), "deep", true).await.unwrap();
    assert_eq!(counts().await, (4, 3));
    world.delete(&alice(), "flat", true).await.unwrap();
    assert_eq!(counts().await, (0, 0));
    assert_eq!(world.nodes().await, 1);
}

async fn limits_are_exact_and_deletions_free_capacity(grace: Grace) {
    let limits = Limits { nodes_per_user: 10, servers_per_user: 15 };
    let world = World::with(grace, FirstNodes::default(), limits).await;
    for number in 0..10 {
        world.mount(&alice(), &format!("{number}"), "/h:1", 0).await.unwrap();
    }
    let refused = world.mount(&alice(), "10", "/h:1", 0).await;
    assert_eq!(refused, Err(Error::NodeLimit { user: "alice".into(), limit: 10 }));
    for port in 2..7 {
        world.mount(&alice(), "0", &format!("/h:{port}"), 0).await.unwrap();
    }
    let refused = world.mount(&alice(), "1", "/h:9", 0).await;
    assert_eq!(refused, Err(Error::ServerLimit { user: "alice".into(), limit: 15 }));
    // A refresh uses no quota; other users have their own.
    world.mount(&alice(), "0", "/h:1", 0).await.unwrap();
    world.mount(&bob(), "bobs", "/h:1", 0).await.unwrap();
    let counts = async || {
        (world.count(Kind::Nodes, "alice").await, world.count(Kind::Servers, "alice").await)
    };
    assert_eq!(counts().await, (10, 15));
    world.pass_grace();
    world.unmount(&alice(), "9", "").await.unwrap();
    world.mount(&alice(), "10", "/h:1", 0).await.unwrap();
    assert_eq!(counts().await, (10, 15));
    world.pass_grace();
    for number in 0..11 {
        world.unmount(&alice(), &format!("{number}"), "").await.unwrap();
    }
    assert_eq!(counts().await, (0, 0));
    assert_eq!(world.nodes().await, 2);
}

async fn servers_are_charged_to_the_creator_of_the_node(grace: Grace) {
    let world = World::open(grace).await;
    let open = Permissions::default().with(ADMIN, ["..."]);
    world.table.set_permissions(&alice().call(), "a/b", &open, "").await.unwrap();
    world.mount(&bob(), "a/b", "/h:1", 0).await.unwrap();
    world.mount(&bob(), "a/b/c/d", "/h:1", 0).await.unwrap();
    let count = async |user: &str| {
        (world.count(Kind::Nodes, user).await, world.count(Kind::Servers, user).await)
    };
    assert_eq!(count("alice").await, (2, 1));
    assert_eq!(count("bob").await, (2, 1));
    assert_eq!(count("self:?:ServerUser").await, (1, 0));
    world.delete(&root(), "a", true).await.unwrap();
    assert_eq!((count("alice").await, count("bob").await), ((0, 0), (0, 0)));
}
