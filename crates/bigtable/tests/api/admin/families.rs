//! ModifyColumnFamilies: order, atomicity, and the effect on cells.

use stele_bigtable::proto::admin::modify_column_families_request::Modification;
use stele_bigtable::proto::admin::modify_column_families_request::modification::Mod;
use stele_bigtable::proto::admin::{ColumnFamily, ModifyColumnFamiliesRequest, Table};
use tonic::{Code, Response, Status};

use super::calls::{name, plain, refused, request, versions};
use crate::server::Server;

fn change(id: &str, r#mod: Mod) -> Modification {
    Modification { id: id.into(), update_mask: None, r#mod: Some(r#mod) }
}

async fn modify(
    server: &Server,
    id: &str,
    modifications: Vec<Modification>,
) -> Result<Table, Status> {
    let request =
        ModifyColumnFamiliesRequest { name: name(id), modifications, ignore_warnings: false };
    server.tables().modify_column_families(request).await.map(Response::into_inner)
}

#[tokio::test]
async fn a_list_of_changes_is_made_in_order_and_answered_with_the_table() {
    let server = Server::start();
    server.create("t", &["a"]).await;
    let changes = vec![
        change("b", Mod::Create(ColumnFamily::default())),
        change("b", Mod::Update(versions(3))),
        change("a", Mod::Drop(true)),
        change("c", Mod::Create(versions(1))),
    ];
    let table = modify(&server, "t", changes).await.unwrap();
    let families: Vec<_> = table.column_families.into_iter().collect();
    assert_eq!(families, [("b".to_string(), versions(3)), ("c".to_string(), versions(1))]);
    assert_eq!((table.name, table.granularity), (name("t"), 1));
}

#[tokio::test]
async fn one_wrong_change_leaves_everything_as_it_was() {
    let mut server = Server::start();
    server.create("t", &["a"]).await;
    server.write("t", b"r", "a", b"v");
    for (wrong, code, text) in [
        (change("a", Mod::Create(versions(1))), Code::AlreadyExists, "already exists"),
        (change("x", Mod::Update(versions(1))), Code::NotFound, "not found"),
        (change("x", Mod::Drop(true)), Code::NotFound, "not found"),
        (change("a", Mod::Drop(false)), Code::InvalidArgument, "drop"),
        (change("a b", Mod::Create(versions(1))), Code::InvalidArgument, "column family name"),
        (change("c", Mod::Create(versions(0))), Code::InvalidArgument, "max_num_versions"),
        (Modification { id: "a".into(), ..Modification::default() }, Code::InvalidArgument, ""),
    ] {
        let changes = vec![
            change("b", Mod::Create(versions(1))),
            change("a", Mod::Update(versions(9))),
            wrong,
        ];
        refused(modify(&server, "t", changes).await, code, text);
    }
    refused(modify(&server, "t", vec![]).await, Code::InvalidArgument, "No modifications");
    let again = vec![change("x", Mod::Create(versions(1)))];
    refused(modify(&server, "none", again).await, Code::NotFound, &name("none"));
    server.restart();
    let families = server.get("t").await.unwrap().column_families;
    assert_eq!(families.into_iter().collect::<Vec<_>>(), [("a".into(), plain())]);
    assert_eq!(server.cells("t"), ["r/a=v"]);
}

#[tokio::test]
async fn a_rule_takes_effect_when_it_is_set_and_ends_when_it_is_removed() {
    let server = Server::start();
    server.create("t", &["f"]).await;
    let store = server.store();
    let table = server.api().tables().get(&name("t")).unwrap().id;
    let mut commit = stele_engine::CommitBuilder::new();
    let row = commit.table(table).row(b"r");
    row.set(b"f", b"q", 1, b"old").set(b"f", b"q", 2, b"new");
    store
        .apply(&commit.finish(), stele_engine::Txn::MAX, stele_engine::Durability::Durable)
        .unwrap();
    modify(&server, "t", vec![change("f", Mod::Update(versions(1)))]).await.unwrap();
    assert_eq!(server.cells("t"), ["r/f=new"]);
    let all = vec![change("f", Mod::Update(ColumnFamily::default()))];
    let table = modify(&server, "t", all).await.unwrap();
    assert_eq!(table.column_families["f"], plain());
    server.write("t", b"s", "f", b"v");
    assert!(server.cells("t").contains(&"s/f=v".to_string()));
}

#[tokio::test]
async fn a_family_dropped_and_made_again_starts_empty_in_one_call_or_two() {
    for one_call in [true, false] {
        let mut server = Server::start();
        server.create("t", &["f", "g"]).await;
        server.write("t", b"r", "f", b"old");
        server.write("t", b"r", "g", b"kept");
        let table = server.api().tables().get(&name("t")).unwrap().id;
        server.store().flush(table).unwrap();
        server.write("t", b"s", "f", b"old");
        let drop = change("f", Mod::Drop(true));
        let make = change("f", Mod::Create(versions(1)));
        if one_call {
            modify(&server, "t", vec![drop, make]).await.unwrap();
        } else {
            modify(&server, "t", vec![drop]).await.unwrap();
            modify(&server, "t", vec![make]).await.unwrap();
        }
        assert_eq!(server.cells("t"), ["r/g=kept"], "in one call: {one_call}");
        server.write("t", b"s", "f", b"new");
        server.restart();
        assert_eq!(server.cells("t"), ["r/g=kept", "s/f=new"], "in one call: {one_call}");
    }
}

#[tokio::test]
async fn a_protected_table_keeps_its_families_but_gains_new_ones() {
    let server = Server::start();
    let protected = Table { deletion_protection: true, ..Table::default() };
    server.tables().create_table(request("t", protected)).await.unwrap();
    modify(&server, "t", vec![change("f", Mod::Create(versions(1)))]).await.unwrap();
    let answer = modify(&server, "t", vec![change("f", Mod::Drop(true))]).await;
    refused(answer, Code::FailedPrecondition, &name("t"));
    assert!(server.get("t").await.unwrap().column_families.contains_key("f"));
}

#[tokio::test]
async fn warnings_may_be_ignored_because_there_are_none() {
    let server = Server::start();
    server.create("t", &["f"]).await;
    let modifications = vec![change("f", Mod::Update(versions(2)))];
    let request =
        ModifyColumnFamiliesRequest { name: name("t"), modifications, ignore_warnings: true };
    let table = server.tables().modify_column_families(request).await.unwrap().into_inner();
    assert_eq!(table.column_families["f"], versions(2));
}
