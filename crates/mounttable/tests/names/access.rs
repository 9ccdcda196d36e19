//! Access control.

use stele_mounttable::Error;
use stele_mounttable::access::{ADMIN, CREATE, MOUNT, Permissions, READ, RESOLVE};

use crate::with_both_graces;
use crate::world::{Grace, Person, World, alice, assert_refused, bob, root};

const NODES: &str = r#"{
    "": {"Admin": {"In": ["root"]}, "Resolve": {"In": ["..."]}},
    "stuff": {"Admin": {"In": ["root"]}, "Mount": {"In": ["bob"]}, "Resolve": {"In": ["alice"]}},
    "open": {"Admin": {"In": ["root"]}, "Create": {"In": ["..."]}, "Read": {"In": ["..."]}},
    "users": {"Create": {"In": ["..."]}, "Read": {"In": ["..."]}},
    "users/%%": {"Admin": {"In": ["%%"]}, "Read": {"In": ["..."], "NotIn": ["eve"]}},
    "deep/down/here": {"Admin": {"In": ["alice"]}},
    "closed": {"Admin": {"In": ["root"]}},
    "closed/%%": {"Admin": {"In": ["root"]}}
}"#;

with_both_graces! {
    readers_may_pass_and_others_are_rejected_per_subtree,
    versions_guard_permissions_and_change_only_with_them,
    setting_permissions_creates_nodes_only_for_creators,
    nobody_loses_a_node_by_accident,
    strangers_neither_mount_nor_unmount,
    the_mount_tag_alone_and_the_create_tag_alone_suffice,
    a_template_gives_users_access_to_their_own_node_only,
    a_creator_administers_the_requested_node_and_not_those_above,
    administrators_of_the_parent_may_delete_invisible_nodes,
    first_nodes_have_their_own_permissions_and_those_above_a_copy,
    first_nodes_are_not_changed_by_a_second_start,
}

fn refused_by(name: &str, tag: &str, error: Error) {
    match error {
        Error::NoPermissions { name: at, tag: missing, .. } => {
            assert_eq!((&at[..], missing), (name, tag));
        }
        other => panic!("{other}"),
    }
}

async fn readers_may_pass_and_others_are_rejected_per_subtree(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    world.mount(&root(), "stuff", "/h:1", 0).await.unwrap();
    world.mount(&root(), "open/a", "/h:1", 0).await.unwrap();
    assert_eq!(world.names(&alice(), "stuff/x").await, ["/h:1/x"]);
    refused_by("stuff", RESOLVE, world.resolve(&bob(), "stuff/x").await.unwrap_err());
    assert_eq!(world.names(&bob(), "open/a").await, ["/h:1"]);
    assert_refused(world.resolve(&Person::nobody(), "stuff").await);
    assert_eq!(world.names(&Person::nobody(), "open/a/x").await, ["/h:1/x"]);
}

async fn versions_guard_permissions_and_change_only_with_them(grace: Grace) {
    let world = World::open(grace).await;
    let call = root().call();
    let closed = Permissions::default().with(ADMIN, ["root"]);
    let first = world.table.set_permissions(&call, "a", &closed, "").await.unwrap();
    let (read, version) = world.table.permissions(&call, "a").await.unwrap();
    assert_eq!((&read, &version), (&closed, &first));
    // Mounts, refreshes and children do not change it.
    world.mount(&root(), "a", "/h:1", 0).await.unwrap();
    world.mount(&root(), "a/b", "/h:1", 0).await.unwrap();
    assert_eq!(world.table.permissions(&call, "a").await.unwrap().1, first);
    for wrong in ["x", "00000000.1", &format!("{first}0")] {
        let refused = world.table.set_permissions(&call, "a", &closed, wrong).await;
        assert!(matches!(refused, Err(Error::BadVersion { .. })), "{refused:?}");
    }
    let second = world.table.set_permissions(&call, "a", &closed, &first).await.unwrap();
    assert_ne!(first, second);
    let refused = world.table.set_permissions(&call, "a", &closed, &first).await;
    assert!(matches!(refused, Err(Error::BadVersion { .. })), "{refused:?}");
    world.table.set_permissions(&call, "a", &closed, "").await.unwrap();
    // A version of a node that does not exist creates nothing.
    let refused = world.table.set_permissions(&call, "new", &closed, &first).await;
    assert!(matches!(refused, Err(Error::BadVersion { .. })), "{refused:?}");
    assert_eq!(world.nodes().await, 3);
}

async fn setting_permissions_creates_nodes_only_for_creators(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    let own = Permissions::default().with(ADMIN, ["bob"]);
    let refused = world.table.set_permissions(&bob().call(), "bobs", &own, "").await;
    refused_by("(root)", CREATE, refused.unwrap_err());
    world.table.set_permissions(&root().call(), "roots", &own, "").await.unwrap();
    world.table.set_permissions(&bob().call(), "open/bobs", &own, "").await.unwrap();
    let refused = world.table.set_permissions(&alice().call(), "open/bobs", &own, "").await;
    refused_by("open/bobs", ADMIN, refused.unwrap_err());
}

async fn nobody_loses_a_node_by_accident(grace: Grace) {
    let world = World::open(grace).await;
    let call = alice().call();
    let others = Permissions::default().with(ADMIN, ["bob", "bob"]).with(READ, ["b", "a", "b"]);
    world.table.set_permissions(&call, "a", &others, "").await.unwrap();
    let (set, _) = world.table.permissions(&call, "a").await.unwrap();
    let expected = Permissions::default().with(ADMIN, ["alice", "bob"]).with(READ, ["a", "b"]);
    assert_eq!(set, expected);
    // A caller that excludes itself is not added.
    let mut without = set.clone();
    without.0.get_mut(ADMIN).unwrap().excluded.push("alice".into());
    world.table.set_permissions(&call, "a", &without, "").await.unwrap();
    assert_refused(world.table.set_permissions(&call, "a", &set, "").await);
}

async fn strangers_neither_mount_nor_unmount(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    refused_by("(root)", CREATE, world.mount(&bob(), "new", "/h:1", 0).await.unwrap_err());
    refused_by("stuff", MOUNT, world.mount(&alice(), "stuff", "/h:1", 0).await.unwrap_err());
    world.mount(&root(), "stuff", "/h:1", 0).await.unwrap();
    refused_by("stuff", MOUNT, world.unmount(&alice(), "stuff", "").await.unwrap_err());
    refused_by("stuff", MOUNT, world.unmount(&alice(), "stuff", "/h:1").await.unwrap_err());
    assert_eq!(world.names(&alice(), "stuff").await, ["/h:1"]);
    assert_eq!(world.nodes().await, 8);
}

async fn the_mount_tag_alone_and_the_create_tag_alone_suffice(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    // Bob may mount at stuff but not see it.
    world.mount(&bob(), "stuff", "/h:1", 0).await.unwrap();
    refused_by("stuff", RESOLVE, world.resolve(&bob(), "stuff").await.unwrap_err());
    world.unmount(&bob(), "stuff", "/h:1").await.unwrap();
    // A node where Bob may only create.
    let only_create = Permissions::default().with(ADMIN, ["root"]).with(CREATE, ["bob"]);
    world.table.set_permissions(&root().call(), "drop", &only_create, "").await.unwrap();
    world.mount(&bob(), "drop/box", "/h:1", 0).await.unwrap();
    refused_by("drop", RESOLVE, world.mount(&alice(), "drop/other", "/h:1", 0).await.unwrap_err());
}

async fn a_template_gives_users_access_to_their_own_node_only(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    world.mount(&alice(), "users/alice", "/h:1", 0).await.unwrap();
    world.mount(&alice(), "users/alice/phone/app", "/h:1", 0).await.unwrap();
    refused_by(
        "users/alice",
        MOUNT,
        world.mount(&bob(), "users/alice", "/h:2", 0).await.unwrap_err(),
    );
    // Nothing is created for another user, neither at the end nor on the path.
    assert_refused(world.mount(&bob(), "users/carol", "/h:2", 0).await);
    refused_by(
        "users/dave",
        CREATE,
        world.mount(&bob(), "users/dave/x", "/h:2", 0).await.unwrap_err(),
    );
    assert_eq!(world.found(&alice(), "users", "*").await, ["alice"]);
    for trap in ["...", "$", "a:b"] {
        let refused = world.mount(&alice(), &format!("users/{trap}"), "/h:1", 0).await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{trap}: {refused:?}");
    }
    let (permissions, _) = world.table.permissions(&bob().call(), "users/alice").await.unwrap();
    assert_eq!(permissions.0.keys().collect::<Vec<_>>(), [ADMIN, READ]);
    assert_refused(world.resolve(&Person::named("eve"), "closed").await);
    for round in ["", ""] {
        let own = Permissions::default().with(ADMIN, ["alice"]);
        let call = alice().call();
        world.table.set_permissions(&call, "users/alice/a/b/c", &own, round).await.unwrap();
    }
}

async fn a_creator_administers_the_requested_node_and_not_those_above(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    world.mount(&alice(), "open/x/y", "/h:1", 0).await.unwrap();
    let admins = async |name: &str| {
        world.table.permissions(&root().call(), name).await.unwrap().0.0[ADMIN].included.clone()
    };
    assert_eq!(admins("open/x").await, ["root"]);
    assert_eq!(admins("open/x/y").await, ["alice", "root"]);
    // Later changes above do not affect nodes below.
    let closed = Permissions::default().with(ADMIN, ["root"]).with(RESOLVE, ["..."]);
    world.table.set_permissions(&root().call(), "open", &closed, "").await.unwrap();
    assert_eq!(world.names(&bob(), "open/x/y").await, ["/h:1"]);
}

async fn administrators_of_the_parent_may_delete_invisible_nodes(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    let bobs = Permissions::default().with(ADMIN, ["bob"]);
    world.table.set_permissions(&bob().call(), "open/bobs", &bobs, "").await.unwrap();
    assert_refused(world.delete(&alice(), "open/bobs", false).await);
    assert_refused(world.resolve(&root(), "open/bobs").await);
    world.delete(&root(), "open/bobs", false).await.unwrap();
    // A caller that may not pass may not delete either.
    world.mount(&alice(), "users/alice/x", "/h:1", 0).await.unwrap();
    assert_refused(world.delete(&Person::named("eve"), "users/alice/x", false).await);
    world.delete(&alice(), "users/alice", true).await.unwrap();
}

async fn first_nodes_have_their_own_permissions_and_those_above_a_copy(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    let of = async |who: &Person, name: &str| {
        world.table.permissions(&who.call(), name).await.unwrap().0
    };
    let at_root = of(&root(), "").await;
    assert_eq!(of(&root(), "deep").await, at_root);
    assert_eq!(of(&root(), "deep/down").await, at_root);
    assert_eq!(of(&alice(), "deep/down/here").await, Permissions::default().with(ADMIN, ["alice"]));
    assert!(of(&root(), "users").await.has_template());
    world.pass_grace();
    assert_eq!(world.nodes().await, 8);
}

async fn first_nodes_are_not_changed_by_a_second_start(grace: Grace) {
    let world = World::guarded(grace, NODES).await;
    let mine = Permissions::default().with(ADMIN, ["alice"]).with(READ, ["..."]);
    world.table.set_permissions(&alice().call(), "deep/down/here", &mine, "").await.unwrap();
    let nodes = stele_mounttable::FirstNodes::from_json(NODES.as_bytes()).unwrap();
    let second = world.another_server();
    second.set_up(&nodes).await.unwrap();
    let (kept, _) = second.permissions(&bob().call(), "deep/down/here").await.unwrap();
    assert_eq!(kept, mine);
    assert_eq!(world.nodes().await, 8);
}

#[tokio::test]
async fn permissions_that_match_nobody_are_rejected() {
    let world = World::open(Grace::None).await;
    for wrong in ["dev:*", "*", "a:...", "a,b"] {
        let permissions = Permissions::open().with("Read", [wrong]);
        let call = root().call();
        let error = world.table.set_permissions(&call, "x", &permissions, "").await.unwrap_err();
        assert!(matches!(error, Error::BadPermissions(_)), "{wrong}: {error}");
        assert!(error.to_string().contains(wrong), "{error}");
    }
    assert_eq!(world.nodes().await, 1, "nothing was created");
}
