//! Glob: patterns, mount points on the path, and access.

use std::collections::BTreeSet;
use std::time::Duration;

use stele_mounttable::{Error, Found, Mount};

use crate::with_both_graces;
use crate::world::{Counted, Grace, World, alice, bob, root};

with_both_graces! {
    patterns_return_matching_nodes,
    a_mount_at_or_above_the_name_is_the_only_answer,
    missing_and_invisible_names_are_reported_as_errors,
    callers_see_only_permitted_nodes,
    a_whole_tree_is_returned_once,
    all_children_of_a_large_node_are_returned,
    invalid_patterns_are_rejected,
}

async fn patterns_return_matching_nodes(grace: Grace) {
    let world = World::open(grace).await;
    for name in ["one/bright/day", "in/the/middle", "of/the/night"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    for (name, pattern, expected) in [
        ("", "*", vec!["in", "of", "one"]),
        (
            "",
            "...",
            vec![
                "",
                "in",
                "in/the",
                "in/the/middle",
                "of",
                "of/the",
                "of/the/night",
                "one",
                "one/bright",
                "one/bright/day",
            ],
        ),
        (
            "",
            "*/...",
            vec![
                "in",
                "in/the",
                "in/the/middle",
                "of",
                "of/the",
                "of/the/night",
                "one",
                "one/bright",
                "one/bright/day",
            ],
        ),
        ("", "one/...", vec!["one", "one/bright", "one/bright/day"]),
        ("", "one/***", vec!["one", "one/bright", "one/bright/day"]),
        ("", "of/the/night/two/dead/boys", vec!["of/the/night"]),
        ("", "*/the", vec!["in/the", "of/the"]),
        ("", "*/the/...", vec!["in/the", "in/the/middle", "of/the", "of/the/night"]),
        ("", "o*", vec!["of", "one"]),
        ("", "[i-n]*", vec!["in"]),
        ("", "", vec![""]),
        ("one", "*", vec!["bright"]),
        ("one", "", vec![""]),
        ("", "none", vec![]),
        ("", "one/none/...", vec![]),
    ] {
        assert_eq!(world.found(&alice(), name, pattern).await, expected, "{name} {pattern}");
    }
}

async fn a_mount_at_or_above_the_name_is_the_only_answer(grace: Grace) {
    let world = World::open(grace).await;
    world.mount(&root(), "a/b", "/h:1/x", 0).await.unwrap();
    for (name, pattern, address) in
        [("a/b", "*", "/h:1/x"), ("a/b/c/d", "e/...", "/h:1/x/c/d"), ("a/b/c", "", "/h:1/x/c")]
    {
        let found = world.glob(&alice(), name, pattern).await;
        let [Found::Entry(entry)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&entry.name[..], &entry.servers[0].address[..]), ("", address));
    }
}

async fn missing_and_invisible_names_are_reported_as_errors(grace: Grace) {
    let nodes = r#"{
        "": {"Admin": {"In": ["root"]}, "Read": {"In": ["..."]}},
        "half/open": {"Admin": {"In": ["root"]}, "Resolve": {"In": ["..."]}},
        "closed": {"Admin": {"In": ["root"]}}
    }"#;
    let world = World::guarded(grace, nodes).await;
    world.mount(&root(), "half/open/door", "/h:1", 0).await.unwrap();
    let found = world.glob(&alice(), "nowhere", "*").await;
    let [Found::Error { name, error: Error::NoSuchName { .. } }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(name, "");
    let found = world.glob(&alice(), "closed", "*").await;
    assert!(matches!(&found[..], [Found::Error { error: Error::NoPermissions { .. }, .. }]));
    // The door is found by its name; listing its parent requires Read.
    assert_eq!(world.found(&alice(), "", "half/open/door").await, ["half/open/door"]);
    let found = world.glob(&alice(), "", "half/open/*").await;
    let [Found::Error { name, error: Error::NoPermissions { tag: "Read", .. } }] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!(name, "half/open");
    assert_eq!(world.found(&root(), "", "half/open/*").await, ["half/open/door"]);
}

async fn callers_see_only_permitted_nodes(grace: Grace) {
    let nodes = r#"{
        "": {"Admin": {"In": ["root"]}, "Read": {"In": ["..."]}},
        "alices": {"Admin": {"In": ["root", "alice"]}},
        "bobs": {"Admin": {"In": ["root", "bob"]}},
        "all": {"Admin": {"In": ["root"]}, "Read": {"In": ["..."]}}
    }"#;
    let world = World::guarded(grace, nodes).await;
    for name in ["alices/x", "bobs/y", "all/z"] {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    assert_eq!(world.found(&root(), "", "*").await, ["alices", "all", "bobs"]);
    assert_eq!(world.found(&alice(), "", "*").await, ["alices", "all"]);
    assert_eq!(world.found(&bob(), "", "*").await, ["all", "bobs"]);
    let deep = world.found(&alice(), "", "*/...").await;
    assert_eq!(deep, ["alices", "alices/x", "all", "all/z"]);
}

async fn a_whole_tree_is_returned_once(grace: Grace) {
    let world = World::open(grace).await;
    for a in 0..5 {
        for b in 0..25 {
            world.mount(&root(), &format!("{a}/{b}"), "/h:1", 0).await.unwrap();
        }
    }
    let mut names = world.found(&alice(), "", "...").await;
    assert_eq!(names.len(), 131);
    names.dedup();
    assert_eq!(names.len(), 131);
    let call = alice().call().within(std::time::Duration::ZERO);
    let (out, mut answers) = tokio::sync::mpsc::channel(4);
    world.table.glob(&call, "", "...", &out).await.unwrap();
    let only = answers.recv().await.unwrap();
    assert!(matches!(only, Found::Error { error: Error::Aborted { .. }, .. }), "{only:?}");
    drop(out);
    assert_eq!(answers.recv().await, None);
}

/// More than fit in the first pages.
const MANY: usize = 400;

async fn make_many(world: &World) -> BTreeSet<String> {
    let names: BTreeSet<_> = (0..MANY).map(|number| format!("many/{number}")).collect();
    for name in &names {
        world.mount(&root(), name, "/h:1", 0).await.unwrap();
    }
    world.clock.advance(Duration::from_secs(120));
    names
}

async fn all_children_of_a_large_node_are_returned(grace: Grace) {
    let world = &World::open(grace).await;
    let names = make_many(world).await;
    // A node that is deleted and created again, while others are too, is returned once.
    let (out, mut answers) = tokio::sync::mpsc::channel(1);
    let call = alice().call();
    let searching = async move { world.table.glob(&call, "", "many/*", &out).await };
    let changing = async {
        let mut found = Vec::new();
        while let Some(Found::Entry(entry)) = answers.recv().await {
            found.push(entry.name);
            if found.len() == 10 {
                for _ in 0..2 {
                    world.delete(&root(), &found[0], false).await.unwrap();
                    world.mount(&root(), &found[0], "/h:2", 0).await.unwrap();
                }
                world.mount(&root(), "many/new", "/h:1", 0).await.unwrap();
            }
        }
        found
    };
    let (searched, mut found) = tokio::join!(searching, changing);
    searched.unwrap();
    found.retain(|name| name != "many/new");
    assert_eq!(found.len(), MANY);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    let deep = world.found(&alice(), "", "...").await;
    assert_eq!(deep.len(), MANY + 3);
}

#[tokio::test]
async fn the_first_answer_does_not_wait_for_all_children() {
    let world = World::in_process(Grace::Minute).await;
    make_many(&world).await;
    let counted = Counted::new(&world.rows);
    let table = world.rows.server_with(&counted.client, world.options());
    let (out, mut answers) = tokio::sync::mpsc::channel(1);
    let call = alice().call();
    let first = async {
        let first = answers.recv().await;
        answers.close();
        (first, counted.take()["ReadRows"])
    };
    let (searched, (first, reads)) = tokio::join!(table.glob(&call, "many", "*", &out), first);
    searched.unwrap();
    assert!(matches!(first, Some(Found::Entry(_))), "{first:?}");
    // Three reads for the walk, then a page of references and a few children.
    assert!(reads <= 6, "{reads} reads");
}

#[tokio::test]
async fn adding_a_child_costs_the_same_however_many_there_are() {
    let world = World::in_process(Grace::Minute).await;
    let counted = Counted::new(&world.rows);
    let table = world.rows.server_with(&counted.client, world.options());
    let mut costs = Vec::new();
    for number in 0..MANY {
        let name = format!("many/{number}");
        counted.take();
        table.mount(&root().call(), &name, &Mount::new("/h:1", 0)).await.unwrap();
        costs.push(counted.take());
    }
    assert_eq!(costs[1], costs[MANY - 1]);
    assert_eq!(costs[1].get("ReadRows"), Some(&2), "the missing row, and its reference");
}

async fn invalid_patterns_are_rejected(grace: Grace) {
    let world = World::open(grace).await;
    let (out, _answers) = tokio::sync::mpsc::channel(4);
    for bad in ["/a", "a//b", "[", "a\\"] {
        let refused = world.table.glob(&alice().call(), "", bad, &out).await;
        assert!(matches!(refused, Err(Error::BadPattern { .. })), "{bad}: {refused:?}");
    }
}
