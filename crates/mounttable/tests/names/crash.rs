//! Crashes at every write of every operation: the remaining damage is limited as
//! designed, and each of the documented ways repairs it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stele_bigtable_client::Mutation;
use stele_mounttable::access::Permissions;
use stele_mounttable::node::CHILDREN;
use stele_mounttable::{Error, Mount, Mounttable, NodeName, fsck};

use crate::world::{CrashPoint, Grace, Mortal, World, alice, bob, root};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Mount,
    Unmount,
    Delete,
    DeleteSubtree,
    SetPermissions,
}

/// Creates the nodes that every operation starts with.
async fn before(world: &World) {
    world.mount(&bob(), "old/1/2", "/h:1", 0).await.unwrap();
    world.mount(&bob(), "old/1/3", "/h:1", 0).await.unwrap();
    world.mount(&bob(), "leaf", "/h:1", 0).await.unwrap();
}

async fn carry_out(table: &Mounttable, operation: Operation) -> Result<(), Error> {
    let call = alice().call();
    match operation {
        Operation::Mount => table.mount(&call, "old/new/x", &Mount::new("/h:1", 0)).await.map(drop),
        Operation::Unmount => table.unmount(&call, "leaf", "").await,
        Operation::Delete => table.delete(&call, "old/1/2", false).await,
        Operation::DeleteSubtree => table.delete(&call, "old", true).await,
        Operation::SetPermissions => {
            table.set_permissions(&call, "old/new/x", &Permissions::open(), "").await.map(drop)
        }
    }
}

/// Crashes an operation at each of its writes in turn; `check` inspects what is left
/// each time.
async fn die_everywhere(operation: Operation, check: impl AsyncFn(&World, &str)) {
    for point in [CrashPoint::BeforeWrite, CrashPoint::AfterWrite] {
        let mut deaths = 0;
        loop {
            let world = World::in_process(Grace::None).await;
            before(&world).await;
            let mortal = Mortal::new(&world.rows, deaths, point);
            let table = world.rows.server_with(&mortal.client, world.options());
            let died = tokio::select! {
                done = carry_out(&table, operation) => {
                    done.unwrap();
                    false
                }
                () = mortal.died() => true,
            };
            if !died {
                break;
            }
            check(&world, &format!("{operation:?} {point:?} write {deaths}")).await;
            deaths += 1;
        }
        assert!(deaths >= 2, "{operation:?} must crash at least twice");
    }
}

/// Asserts that only damage that the design allows is left.
async fn assert_only_references_and_counters(world: &World, context: &str) {
    let report = fsck::check(world.table.rows()).await.unwrap();
    for problem in &report.problems {
        assert!(matches!(problem.kind(), "dangling" | "counter"), "{context}: {problem}");
    }
}

/// Asserts that nothing but counters, which only fsck corrects, is wrong.
async fn assert_sound_but_for_counters(world: &World, context: &str) {
    let report = fsck::check(world.table.rows()).await.unwrap();
    let kinds: BTreeSet<_> = report.problems.iter().map(fsck::Problem::kind).collect();
    assert!(kinds.is_empty() || kinds == BTreeSet::from(["counter"]), "{context}: {kinds:?}");
}

const ALL: [Operation; 5] = [
    Operation::Mount,
    Operation::Unmount,
    Operation::Delete,
    Operation::DeleteSubtree,
    Operation::SetPermissions,
];

#[tokio::test]
async fn who_dies_leaves_at_worst_a_reference_without_a_row() {
    for operation in ALL {
        die_everywhere(operation, assert_only_references_and_counters).await;
    }
}

#[tokio::test]
async fn the_same_operation_done_again_completes_it() {
    for operation in ALL {
        die_everywhere(operation, async |world: &World, context: &str| {
            carry_out(&world.table, operation).await.unwrap();
            if matches!(operation, Operation::Mount | Operation::SetPermissions) {
                assert_sound_but_for_counters(world, context).await;
            } else {
                assert_only_references_and_counters(world, context).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn creating_the_child_again_repairs_its_reference() {
    die_everywhere(Operation::Mount, async |world: &World, context: &str| {
        world.mount(&bob(), "old/new/x", "/h:2", 0).await.unwrap();
        assert_sound_but_for_counters(world, context).await;
        assert_eq!(world.found(&bob(), "old/new", "*").await, ["x"], "{context}");
    })
    .await;
    die_everywhere(Operation::Delete, async |world: &World, context: &str| {
        world.mount(&bob(), "old/1/2", "/h:2", 0).await.unwrap();
        assert_sound_but_for_counters(world, context).await;
    })
    .await;
}

#[tokio::test]
async fn deleting_the_subtree_of_the_parent_repairs_what_is_below() {
    for operation in [Operation::Mount, Operation::Delete, Operation::DeleteSubtree] {
        die_everywhere(operation, async |world: &World, context: &str| {
            world.delete(&root(), "old", true).await.unwrap();
            let report = fsck::check(world.table.rows()).await.unwrap();
            let dangling = |problem: &&fsck::Problem| problem.kind() != "counter";
            let left: Vec<_> = report.problems.iter().filter(dangling).collect();
            // Only the root may still refer to what was deleted below it.
            let at_root = |problem: &&fsck::Problem| {
                matches!(problem, fsck::Problem::Dangling { parent, .. } if parent.is_root())
            };
            assert!(left.iter().all(at_root), "{context}: {left:?}");
            assert_eq!(report.nodes, 2, "{context}");
        })
        .await;
    }
}

#[tokio::test]
async fn fsck_mends_everything() {
    for operation in ALL {
        die_everywhere(operation, async |world: &World, context: &str| {
            let (_, report) = fsck::repair(world.table.rows()).await.unwrap();
            assert!(report.is_sound(), "{context}: {:?}", report.problems);
            let again: Arc<Mounttable> = world.another_server();
            carry_out(&again, operation).await.unwrap();
            world.nodes().await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_stalled_creator_finds_that_it_was_overtaken() {
    // The creator stalls after its reference and before its row. Meanwhile the parent
    // is deleted; then the creator continues.
    let world = World::in_process(Grace::None).await;
    world.mount(&bob(), "dir/other", "/h:1", 0).await.unwrap();
    let mortal = Mortal::stalling(&world.rows, 1);
    let table = world.rows.server_with(&mortal.client, world.options());
    let creating = tokio::spawn(async move {
        table.mount(&alice().call(), "dir/new", &Mount::new("/h:1", 0)).await
    });
    mortal.died().await;
    world.delete(&root(), "dir", true).await.unwrap();
    mortal.go_on();
    creating.await.unwrap().unwrap();
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.found(&root(), "", "...").await, ["", "dir", "dir/new"]);
    assert_eq!(world.nodes().await, 3);
}

#[tokio::test]
async fn a_deletion_that_found_no_row_reads_it_again() {
    // The creator stalls after its reference, and the deletion after it has found that
    // there is no row. Then the creator mounts successfully.
    let world = World::in_process(Grace::None).await;
    let open = Permissions::open();
    world.table.set_permissions(&root().call(), "dir", &open, "").await.unwrap();
    let creator = Mortal::stalling(&world.rows, 1);
    let table = world.rows.server_with(&creator.client, world.options());
    let creating = tokio::spawn(async move {
        table.mount(&alice().call(), "dir/new", &Mount::new("/h:1", 0)).await
    });
    creator.died().await;
    let deleter = Mortal::stalling(&world.rows, 0);
    let table = world.rows.server_with(&deleter.client, world.options());
    let deleting = tokio::spawn(async move { table.delete(&root().call(), "dir", true).await });
    deleter.died().await;
    creator.go_on();
    creating.await.unwrap().unwrap();
    deleter.go_on();
    deleting.await.unwrap().unwrap();
    assert_eq!(world.nodes().await, 1);
}

#[tokio::test]
async fn a_server_with_cached_children_repairs_what_others_leave_later() {
    // One server has seen the parent's references; another crashes after writing one
    // more, and a third after deleting a row that the first knows.
    let world = World::in_process(Grace::None).await;
    for name in ["dir/a", "dir/b"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    let creator = Mortal::new(&world.rows, 0, CrashPoint::AfterWrite);
    let table = world.rows.server_with(&creator.client, world.options());
    let (call, mount) = (root().call(), Mount::new("/h:1", 0));
    tokio::select! {
        _ = table.mount(&call, "dir/new", &mount) => panic!("expected a crash"),
        () = creator.died() => {}
    }
    let deleter = Mortal::new(&world.rows, 0, CrashPoint::AfterWrite);
    let table = world.rows.server_with(&deleter.client, world.options());
    tokio::select! {
        _ = table.delete(&call, "dir/a", false) => panic!("expected a crash"),
        () = deleter.died() => {}
    }
    let left = fsck::check(world.table.rows()).await.unwrap();
    let dangling = left.problems.iter().filter(|problem| problem.kind() == "dangling");
    assert_eq!(dangling.count(), 2);
    world.clock.advance(Duration::from_secs(2));
    for name in ["dir/new", "dir/a"] {
        world.mount(&root(), name, "/h:2", 0).await.unwrap();
    }
    assert_sound_but_for_counters(&world, "both created again").await;
    assert_eq!(world.found(&root(), "dir", "*").await, ["a", "b", "new"]);
}

#[tokio::test]
async fn a_lost_reference_is_restored_by_later_refreshes() {
    let world = World::in_process(Grace::None).await;
    world.mount(&root(), "dir/a", "/h:1", 0).await.unwrap();
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    let key = NodeName::parse("dir").unwrap().row_key();
    let row = rows.read_row(key.clone(), None).await.unwrap().unwrap();
    let column = row.family(CHILDREN).next().unwrap().qualifier.clone();
    rows.mutate_row(key, [Mutation::delete_column(CHILDREN, column)]).await.unwrap();
    for _ in 0..6 {
        world.clock.advance(Duration::from_secs(60));
        world.mount(&root(), "dir/a", "/h:1", 0).await.unwrap();
    }
    assert_eq!(world.found(&root(), "dir", "*").await, ["a"]);
    assert_eq!(world.nodes().await, 3);
}
