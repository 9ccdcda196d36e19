//! Death at every write of every operation: what is left is what the design
//! says, and each of the promised ways mends it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stele_bigtable::client::Mutation;
use stele_mounttable::access::Permissions;
use stele_mounttable::node::CHILDREN;
use stele_mounttable::{Error, Mount, Mounttable, NodeName, fsck};

use crate::world::{Grace, Moment, Mortal, World, alice, bob, root};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Mount,
    Unmount,
    Delete,
    DeleteSubtree,
    SetPermissions,
}

/// What every operation finds.
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

/// Lets an operation die at each of its writes in turn; `check` looks at what
/// is left each time.
async fn die_everywhere(operation: Operation, check: impl AsyncFn(&World, &str)) {
    for moment in [Moment::BeforeIt, Moment::AfterIt] {
        let mut deaths = 0;
        loop {
            let world = World::in_process(Grace::None).await;
            before(&world).await;
            let mortal = Mortal::new(&world.rows, deaths, moment);
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
            check(&world, &format!("{operation:?} {moment:?} write {deaths}")).await;
            deaths += 1;
        }
        assert!(deaths >= 2, "{operation:?} was to die at least twice");
    }
}

/// Only what the design allows may be left.
async fn assert_only_references_and_counters(world: &World, place: &str) {
    let report = fsck::check(world.table.rows()).await.unwrap();
    for problem in &report.problems {
        assert!(matches!(problem.kind(), "dangling" | "counter"), "{place}: {problem}");
    }
}

/// Counters are for fsck alone; all else must be well.
async fn assert_sound_but_for_counters(world: &World, place: &str) {
    let report = fsck::check(world.table.rows()).await.unwrap();
    let kinds: BTreeSet<_> = report.problems.iter().map(fsck::Problem::kind).collect();
    assert!(kinds.is_empty() || kinds == BTreeSet::from(["counter"]), "{place}: {kinds:?}");
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
        die_everywhere(operation, async |world: &World, place: &str| {
            carry_out(&world.table, operation).await.unwrap();
            if matches!(operation, Operation::Mount | Operation::SetPermissions) {
                assert_sound_but_for_counters(world, place).await;
            } else {
                assert_only_references_and_counters(world, place).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn making_the_child_again_mends_its_reference() {
    die_everywhere(Operation::Mount, async |world: &World, place: &str| {
        world.mount(&bob(), "old/new/x", "/h:2", 0).await.unwrap();
        assert_sound_but_for_counters(world, place).await;
        assert_eq!(world.found(&bob(), "old/new", "*").await, ["x"], "{place}");
    })
    .await;
    die_everywhere(Operation::Delete, async |world: &World, place: &str| {
        world.mount(&bob(), "old/1/2", "/h:2", 0).await.unwrap();
        assert_sound_but_for_counters(world, place).await;
    })
    .await;
}

#[tokio::test]
async fn deleting_the_parent_by_force_mends_what_is_below() {
    for operation in [Operation::Mount, Operation::Delete, Operation::DeleteSubtree] {
        die_everywhere(operation, async |world: &World, place: &str| {
            world.delete(&root(), "old", true).await.unwrap();
            let report = fsck::check(world.table.rows()).await.unwrap();
            let dangling = |problem: &&fsck::Problem| problem.kind() != "counter";
            let left: Vec<_> = report.problems.iter().filter(dangling).collect();
            // Only the root may still refer to what was deleted under it.
            let at_root = |problem: &&fsck::Problem| {
                matches!(problem, fsck::Problem::Dangling { parent, .. } if parent.is_root())
            };
            assert!(left.iter().all(at_root), "{place}: {left:?}");
            assert_eq!(report.nodes, 2, "{place}");
        })
        .await;
    }
}

#[tokio::test]
async fn fsck_mends_everything() {
    for operation in ALL {
        die_everywhere(operation, async |world: &World, place: &str| {
            let (_, report) = fsck::mend(world.table.rows()).await.unwrap();
            assert!(report.is_sound(), "{place}: {:?}", report.problems);
            let again: Arc<Mounttable> = world.another_server();
            carry_out(&again, operation).await.unwrap();
            world.nodes().await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_stalled_creator_finds_that_it_was_overtaken() {
    // The creator stops after its reference and before its row. Meanwhile the
    // parent is deleted; then the creator goes on.
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
async fn a_deletion_that_came_before_a_row_looks_for_it_again() {
    // The creator stops after its reference, and the deletion when it has
    // found that there is no row. Then the creator mounts and is answered.
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
async fn a_server_that_knows_the_children_still_mends_what_others_leave_later() {
    // One server has seen the parent's references; another dies after writing
    // one more, and a third after deleting a row that the first knows.
    let world = World::in_process(Grace::None).await;
    for name in ["dir/a", "dir/b"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    let creator = Mortal::new(&world.rows, 0, Moment::AfterIt);
    let table = world.rows.server_with(&creator.client, world.options());
    let (call, mount) = (root().call(), Mount::new("/h:1", 0));
    tokio::select! {
        _ = table.mount(&call, "dir/new", &mount) => panic!("it was to die"),
        () = creator.died() => {}
    }
    let deleter = Mortal::new(&world.rows, 0, Moment::AfterIt);
    let table = world.rows.server_with(&deleter.client, world.options());
    tokio::select! {
        _ = table.delete(&call, "dir/a", false) => panic!("it was to die"),
        () = deleter.died() => {}
    }
    let left = fsck::check(world.table.rows()).await.unwrap();
    let dangling = left.problems.iter().filter(|problem| problem.kind() == "dangling");
    assert_eq!(dangling.count(), 2);
    world.clock.advance(Duration::from_secs(2));
    for name in ["dir/new", "dir/a"] {
        world.mount(&root(), name, "/h:2", 0).await.unwrap();
    }
    assert_sound_but_for_counters(&world, "both made again").await;
    assert_eq!(world.found(&root(), "dir", "*").await, ["a", "b", "new"]);
}

#[tokio::test]
async fn a_reference_that_was_lost_is_given_back_by_later_refreshes() {
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
