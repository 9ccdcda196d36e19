//! fsck: orphaned rows, dangling references, wrong times, wrong counters.

use bytes::Bytes;
use stele_bigtable_client::Mutation;
use stele_mounttable::fsck;
use stele_mounttable::node::{CHILDREN, PRESENT, reference_column};
use stele_mounttable::{Error, NodeName};

use crate::with_both_graces;
use crate::world::{Grace, World, root};

with_both_graces! {
    orphans_and_dangling_references_are_repaired,
    an_orphan_without_ancestors_gets_them_back,
    a_check_in_many_parts_finds_the_same,
    a_reference_with_another_time_is_repaired,
    wrong_counters_are_repaired,
    a_damaged_row_is_reported_and_not_changed,
}

fn key(name: &str) -> String {
    NodeName::parse(name).unwrap().row_key()
}

async fn kinds(world: &World) -> Vec<&'static str> {
    let report = fsck::check(world.table.rows()).await.unwrap();
    report.problems.iter().map(fsck::Problem::kind).collect()
}

/// Removes the root's references to children whose names start with `bad`.
async fn forget_bad(world: &World) -> usize {
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    let top = rows.read_row(key(""), None).await.unwrap().unwrap();
    let is_bad = |column: &Bytes| String::from_utf8_lossy(&column[8..]).starts_with("bad");
    let bad: Vec<_> =
        top.family(CHILDREN).map(|cell| cell.qualifier.clone()).filter(is_bad).collect();
    let forgotten = bad.len();
    let deletes = bad.into_iter().map(|column| Mutation::delete_column(CHILDREN, column));
    rows.mutate_row(key(""), deletes.collect::<Vec<_>>()).await.unwrap();
    forgotten
}

/// Creates five good nodes, five subtrees without a reference to them, of which two
/// have a live server, and a dangling reference.
async fn damaged(grace: Grace) -> World {
    let world = World::open(grace).await;
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    for number in 0..5 {
        world.mount(&root(), &format!("good{number}"), "/h:1", 0).await.unwrap();
        for child in 0..5 {
            let ttl = if number < 2 && child == 3 { 0 } else { 60 };
            world.mount(&root(), &format!("bad{number}/mid/{child}"), "/h:1", ttl).await.unwrap();
        }
    }
    assert_eq!(world.nodes().await, 41);
    assert_eq!(forget_bad(&world).await, 5);
    let nothing = Mutation::set(CHILDREN, reference_column("deadbeef", "nothing"), PRESENT);
    rows.mutate_row(key(""), [nothing]).await.unwrap();
    world.clock.advance(std::time::Duration::from_secs(120));
    world
}

async fn orphans_and_dangling_references_are_repaired(grace: Grace) {
    let world = damaged(grace).await;
    let found = kinds(&world).await;
    assert_eq!(found.iter().filter(|kind| **kind == "orphan").count(), 5);
    assert_eq!(found.iter().filter(|kind| **kind == "dangling").count(), 1);
    let (mended, report) = fsck::repair(world.table.rows()).await.unwrap();
    assert!(mended.len() >= 6 && report.is_sound(), "{mended:?} {report:?}");
    // Subtrees with a live server are kept, the others are deleted.
    assert_eq!((world.nodes().await, report.servers), (6 + 2 * 7, 5 + 2 * 5));
    for kept in ["bad0/mid/3", "bad1/mid/3"] {
        assert_eq!(world.names(&root(), kept).await, ["/h:1"]);
    }
    world.assert_gone(&root(), "bad2/mid/3").await;
}

async fn an_orphan_without_ancestors_gets_them_back(grace: Grace) {
    let world = World::open(grace).await;
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    world.mount(&root(), "bad/mid/leaf", "/h:1", 0).await.unwrap();
    forget_bad(&world).await;
    for lost in ["bad", "bad/mid"] {
        rows.mutate_row(key(lost), [Mutation::delete_row()]).await.unwrap();
    }
    assert_eq!(kinds(&world).await, ["orphan", "counter"]);
    let (_, report) = fsck::repair(world.table.rows()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    world.clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(world.names(&root(), "bad/mid/leaf").await, ["/h:1"]);
}

async fn a_check_in_many_parts_finds_the_same(grace: Grace) {
    let world = damaged(grace).await;
    let rows = world.table.rows();
    let whole = fsck::check(rows).await.unwrap();
    assert_eq!(whole.problems.len(), 6, "{whole:?}");
    for checked_max in [40, 7, 2] {
        assert_eq!(fsck::check_within(rows, checked_max).await.unwrap(), whole);
    }
}

async fn a_reference_with_another_time_is_repaired(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a", "/h:1", 0).await.unwrap();
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    let top = rows.read_row(key(""), None).await.unwrap().unwrap();
    let cell = top.family(CHILDREN).next().unwrap();
    let later = cell.timestamp_micros + 1000;
    let other = Mutation::set_at(CHILDREN, cell.qualifier.clone(), later, PRESENT);
    rows.mutate_row(key(""), [other]).await.unwrap();
    assert_eq!(kinds(&world).await, ["other-time"]);
    let (_, report) = fsck::repair(world.table.rows()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
}

async fn wrong_counters_are_repaired(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b", "/h:1", 0).await.unwrap();
    let numbers = [("num-nodes-per-user:root".to_string(), 7), ("num-nodes-per-user:x".into(), 1)];
    world.table.rows().counters.set(numbers).await.unwrap();
    assert_eq!(kinds(&world).await, ["counter", "counter"]);
    let (_, report) = fsck::repair(world.table.rows()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    let all = world.table.rows().counters.all().await.unwrap();
    assert_eq!(all["num-nodes-per-user:root"], 2);
    assert!(!all.contains_key("num-nodes-per-user:x"));
}

async fn a_damaged_row_is_reported_and_not_changed(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a", "/h:1", 0).await.unwrap();
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    let garbage = [Mutation::delete_column("m", "p"), Mutation::set("m", "p", "{not json")];
    rows.mutate_row(key("a"), garbage).await.unwrap();
    world.clock.advance(std::time::Duration::from_secs(2));
    let resolved = world.resolve(&root(), "a").await;
    assert!(matches!(resolved, Err(Error::Damaged { .. })), "{resolved:?}");
    let (_, report) = fsck::repair(world.table.rows()).await.unwrap();
    assert!(report.problems.iter().any(|problem| problem.kind() == "damaged"), "{report:?}");
}
