//! Mounting, unmounting, resolving and deleting.

use stele_mounttable::node::Flags;
use stele_mounttable::{Error, FOREVER_MICROS, Mount};

use crate::with_both_graces;
use crate::world::{Grace, World, alice, bob, root};

with_both_graces! {
    mounts_at_any_depth_resolve_with_the_rest_of_the_name,
    a_name_without_servers_does_not_resolve,
    unmounting_removes_empty_ancestors_but_not_sticky_nodes,
    deleting_needs_an_empty_node_or_a_subtree,
    addresses_are_checked_before_anything_is_created,
    a_server_may_replace_all_others,
    flags_are_the_union_over_servers,
    children_below_a_mount_are_kept_and_shadowed,
    long_and_reserved_names_are_rejected,
}

async fn mounts_at_any_depth_resolve_with_the_rest_of_the_name(grace: Grace) {
    let world = World::open(grace).await;
    for name in ["stuff", "a/b", "alpha//beta", "x/y/z/w/"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    for (name, expected) in [
        ("stuff", "/h:1"),
        ("stuff//the/Suffix", "/h:1/the/Suffix"),
        ("a/b/c", "/h:1/c"),
        ("alpha/beta", "/h:1"),
        ("//x/y//z/w", "/h:1"),
        ("nothing/../stuff/x", "/h:1/x"),
    ] {
        assert_eq!(world.names(&alice(), name).await, [expected], "{name}");
    }
    for name in ["", "a", "a/c", "alpha", "x/y", "beta"] {
        world.assert_gone(&alice(), name).await;
    }
    let entry = world.resolve(&alice(), "a/b/c/d").await.unwrap();
    assert_eq!(entry.name, "c/d");
    assert_eq!(entry.servers[0].deadline_micros, FOREVER_MICROS);
    world.nodes().await;
}

async fn a_name_without_servers_does_not_resolve(grace: Grace) {
    let world = World::open(grace).await;
    for server in ["/h:1", "/h:2", "/h:3"] {
        world.mount(&root(), "a/b", server, 0).await.unwrap();
    }
    assert_eq!(world.names(&root(), "a/b").await, ["/h:1", "/h:2", "/h:3"]);
    world.unmount(&root(), "a/b", "/h:2").await.unwrap();
    world.unmount(&root(), "a/b", "/h:2").await.unwrap();
    assert_eq!(world.names(&root(), "a/b").await, ["/h:1", "/h:3"]);
    world.unmount(&root(), "a/b", "").await.unwrap();
    world.assert_gone(&root(), "a/b").await;
    world.mount(&root(), "a/c", "/h:1", 0).await.unwrap();
    world.unmount(&root(), "a/c", "/h:1").await.unwrap();
    world.assert_gone(&root(), "a/c").await;
    // Unmounting a missing server succeeds.
    world.unmount(&root(), "never/was", "/h:1").await.unwrap();
}

async fn unmounting_removes_empty_ancestors_but_not_sticky_nodes(grace: Grace) {
    let world = World::open(grace).await;
    let (permissions, _) = world.table.permissions(&root().call(), "").await.unwrap();
    world.table.set_permissions(&root().call(), "kept/x", &permissions, "").await.unwrap();
    world.mount(&root(), "kept/x/y/z", "/h:1", 0).await.unwrap();
    world.mount(&root(), "gone/x/y/z", "/h:1", 0).await.unwrap();
    assert_eq!(world.nodes().await, 9);
    world.pass_grace();
    world.unmount(&root(), "kept/x/y/z", "/h:1").await.unwrap();
    world.unmount(&root(), "gone/x/y/z", "/h:1").await.unwrap();
    assert_eq!(world.found(&root(), "", "...").await, ["", "kept", "kept/x"]);
    assert_eq!(world.nodes().await, 3);
}

async fn deleting_needs_an_empty_node_or_a_subtree(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b/c", "/h:1", 0).await.unwrap();
    world.mount(&root(), "a/b/d", "/h:1", 0).await.unwrap();
    let refused = world.delete(&root(), "a/b", false).await;
    assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{refused:?}");
    world.delete(&root(), "a/b/c", false).await.unwrap();
    world.assert_gone(&root(), "a/b/c").await;
    world.delete(&root(), "a", true).await.unwrap();
    assert_eq!(world.nodes().await, 1);
    world.delete(&root(), "a/b", false).await.unwrap();
    for subtree in [true, false] {
        assert_eq!(world.delete(&root(), "", subtree).await, Err(Error::NoAccess));
    }
}

async fn addresses_are_checked_before_anything_is_created(grace: Grace) {
    let world = World::open(grace).await;
    for good in ["/h:1", "h:1", "@6@tcp@h:1@@0@s@x@@", "/@6@tcp@h:1@@0@s@x@@/suffix"] {
        world.mount(&root(), "good", good, 0).await.unwrap();
    }
    for bad in ["", "/h", "h", "@6@tcp", "a@h:1"] {
        let refused = world.mount(&root(), "bad/x", bad, 0).await;
        assert!(matches!(refused, Err(Error::MalformedAddress { .. })), "{bad}: {refused:?}");
    }
    assert_eq!(world.nodes().await, 2);
}

async fn a_server_may_replace_all_others(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a", "/h:1", 0).await.unwrap();
    world.mount(&root(), "a", "/h:2", 0).await.unwrap();
    let replace = Mount { replace: true, ..Mount::new("/h:3", 0) };
    world.table.mount(&root().call(), "a", &replace).await.unwrap();
    assert_eq!(world.names(&root(), "a").await, ["/h:3"]);
    world.table.mount(&root().call(), "a", &replace).await.unwrap();
    assert_eq!(world.names(&root(), "a").await, ["/h:3"]);
    world.nodes().await;
}

async fn flags_are_the_union_over_servers(grace: Grace) {
    let world = World::open(grace).await;
    let mount =
        |server: &str, mt, leaf| Mount { flags: Flags { mt, leaf }, ..Mount::new(server, 60) };
    let flags = async |mount: &Mount| {
        world.table.mount(&root().call(), "a", mount).await.unwrap();
        let flags = world.resolve(&bob(), "a").await.unwrap().flags;
        (flags.mt, flags.leaf)
    };
    assert_eq!(flags(&mount("/h:1", false, false)).await, (false, false));
    assert_eq!(flags(&mount("/h:2", true, false)).await, (true, false));
    assert_eq!(flags(&mount("/h:3", false, true)).await, (true, true));
    // A refresh replaces the flags.
    assert_eq!(flags(&mount("/h:2", false, false)).await, (false, true));
}

async fn children_below_a_mount_are_kept_and_shadowed(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b", "/h:1", 0).await.unwrap();
    world.mount(&root(), "a", "/h:2", 0).await.unwrap();
    world.mount(&root(), "a/c", "/h:3", 0).await.unwrap();
    assert_eq!(world.names(&root(), "a/b").await, ["/h:2/b"]);
    assert_eq!(world.found(&root(), "", "*").await, ["a"]);
    assert_eq!(world.found(&root(), "", "...").await, ["", "a"]);
    world.unmount(&root(), "a", "/h:2").await.unwrap();
    assert_eq!(world.names(&root(), "a/b").await, ["/h:1"]);
    assert_eq!(world.names(&root(), "a/c").await, ["/h:3"]);
}

async fn long_and_reserved_names_are_rejected(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), &"x".repeat(512), "/h:1", 0).await.unwrap();
    for name in ["x".repeat(513), "__debug/x".into(), "abcdefgh/".repeat(500)] {
        let refused = world.mount(&root(), &name, "/h:1", 0).await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
    }
    // The longest valid name.
    let longest = "abcdefg/".repeat(510) + "abcdefg";
    assert_eq!(longest.len(), stele_mounttable::NAME_BYTES_MAX);
    world.mount(&root(), &longest, "/h:1", 0).await.unwrap();
    assert_eq!(world.names(&root(), &longest).await, ["/h:1"]);
    world.delete(&root(), "abcdefg", true).await.unwrap();
    assert_eq!(world.nodes().await, 2);
}
