//! Tables over time: deletion and protection, restarts, consistency tokens, and
//! concurrent callers.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::FieldMask;
use stele_bigtable::proto::admin::check_consistency_request::Mode;
use stele_bigtable::proto::admin::create_table_request::Split;
use stele_bigtable::proto::admin::modify_column_families_request::Modification;
use stele_bigtable::proto::admin::modify_column_families_request::modification::Mod;
use stele_bigtable::proto::admin::{
    CheckConsistencyRequest, ColumnFamily, CreateTableRequest, DataBoostReadLocalWrites,
    DeleteTableRequest, GenerateConsistencyTokenRequest, ModifyColumnFamiliesRequest,
    StandardReadRemoteWrites, Table, UpdateTableMetadata, UpdateTableRequest,
};
use stele_bigtable::proto::longrunning::{GetOperationRequest, Operation, operation};
use tonic::{Code, Response, Status};

use super::calls::{PARENT, name, refused, request, versions};
use crate::server::Server;

async fn delete(server: &Server, id: &str) -> Result<(), Status> {
    let request = DeleteTableRequest { name: name(id) };
    server.tables().delete_table(request).await.map(Response::into_inner)
}

async fn token(server: &Server, id: &str) -> String {
    let request = GenerateConsistencyTokenRequest { name: name(id) };
    let answer = server.tables().generate_consistency_token(request).await.unwrap();
    answer.into_inner().consistency_token
}

async fn consistent(server: &Server, id: &str, token: &str) -> Result<bool, Status> {
    let request =
        CheckConsistencyRequest { name: name(id), consistency_token: token.into(), mode: None };
    server.tables().check_consistency(request).await.map(|answer| answer.into_inner().consistent)
}

#[tokio::test]
async fn a_deleted_table_is_gone_and_its_name_starts_anew() {
    let mut server = Server::start();
    server.create("t", &["f"]).await;
    server.write("t", b"r", "f", b"old");
    delete(&server, "t").await.unwrap();
    refused(server.get("t").await, Code::NotFound, &name("t"));
    refused(delete(&server, "t").await, Code::NotFound, &name("t"));
    server.restart();
    refused(server.get("t").await, Code::NotFound, &name("t"));
    server.create("t", &["f"]).await;
    assert!(server.cells("t").is_empty());
    let malformed = DeleteTableRequest { name: PARENT.into() };
    let answer = server.tables().delete_table(malformed).await;
    refused(answer, Code::InvalidArgument, "expected in the form");
}

#[tokio::test]
async fn a_protected_table_is_not_deleted_after_a_restart_either() {
    let mut server = Server::start();
    let protected = Table { deletion_protection: true, ..Table::default() };
    server.tables().create_table(request("t", protected)).await.unwrap();
    refused(delete(&server, "t").await, Code::FailedPrecondition, &name("t"));
    server.restart();
    refused(delete(&server, "t").await, Code::FailedPrecondition, &name("t"));
    assert!(server.get("t").await.unwrap().deletion_protection);
}

async fn protect(
    server: &Server,
    id: &str,
    deletion_protection: bool,
    mask: &[&str],
) -> Result<Operation, Status> {
    let table = Table { name: name(id), deletion_protection, ..Table::default() };
    let paths = mask.iter().map(|path| path.to_string()).collect();
    let request = UpdateTableRequest {
        table: Some(table),
        update_mask: Some(FieldMask { paths }),
        ignore_warnings: false,
    };
    server.tables().update_table(request).await.map(Response::into_inner)
}

/// Returns the table in the response of a finished operation.
fn updated(operation: &Operation) -> Table {
    assert!(operation.done);
    let Some(operation::Result::Response(response)) = &operation.result else {
        panic!("no response: {operation:?}");
    };
    assert_eq!(response.type_url, "type.googleapis.com/google.bigtable.admin.v2.Table");
    Table::decode(&response.value[..]).unwrap()
}

#[tokio::test]
async fn protection_is_switched_on_and_off_by_an_operation_that_is_done_at_once() {
    let mut server = Server::start();
    server.create("t", &["f"]).await;
    server.write("t", b"r", "f", b"kept");
    let on = protect(&server, "t", true, &["deletion_protection"]).await.unwrap();
    let table = updated(&on);
    assert!(table.deletion_protection && table.column_families.contains_key("f"));
    let metadata = on.metadata.as_ref().unwrap();
    assert!(metadata.type_url.ends_with("google.bigtable.admin.v2.UpdateTableMetadata"));
    let metadata = UpdateTableMetadata::decode(&metadata.value[..]).unwrap();
    assert_eq!(metadata.name, name("t"));
    assert!(metadata.start_time.is_some() && metadata.end_time.is_some());
    refused(delete(&server, "t").await, Code::FailedPrecondition, &name("t"));
    server.restart();
    let poll = GetOperationRequest { name: on.name.clone() };
    let polled = server.operations().get_operation(poll.clone()).await.unwrap().into_inner();
    assert_eq!(polled, on, "an operation is found after a restart");
    refused(delete(&server, "t").await, Code::FailedPrecondition, &name("t"));
    assert_eq!(server.cells("t"), ["r/f=kept"]);
    let off = protect(&server, "t", false, &["deletion_protection"]).await.unwrap();
    assert!(!updated(&off).deletion_protection);
    delete(&server, "t").await.unwrap();
    let polled = server.operations().get_operation(poll).await.unwrap().into_inner();
    assert_eq!(polled, on, "it outlives the table");
}

#[tokio::test]
async fn an_update_of_anything_else_changes_nothing() {
    let server = Server::start();
    server.create("t", &["f"]).await;
    for (mask, code, text) in [
        (&[][..], Code::InvalidArgument, "A non-empty 'update_mask' must be specified"),
        (&["deletion_protection", "*"], Code::InvalidArgument, "update_mask"),
        (&["deletion_protection", "column_families"], Code::Unimplemented, "column_families"),
    ] {
        refused(protect(&server, "t", true, mask).await, code, text);
    }
    assert!(!server.get("t").await.unwrap().deletion_protection);
    let missing = protect(&server, "none", true, &["deletion_protection"]).await;
    refused(missing, Code::NotFound, &name("none"));
}

#[tokio::test]
async fn definitions_come_back_after_a_restart() {
    let mut server = Server::start();
    let families = BTreeMap::from([("a".into(), versions(3)), ("b".into(), versions(1))]);
    let table = Table { column_families: families, granularity: 2, ..Table::default() };
    let splits = ["x", "k"].map(|key| Split { key: key.into() }).to_vec();
    let create = CreateTableRequest { initial_splits: splits, ..request("t", table) };
    server.tables().create_table(create).await.unwrap();
    let modifications = vec![
        Modification { id: "b".into(), update_mask: None, r#mod: Some(Mod::Drop(true)) },
        Modification { id: "c".into(), update_mask: None, r#mod: Some(Mod::Create(versions(7))) },
    ];
    let request =
        ModifyColumnFamiliesRequest { name: name("t"), modifications, ignore_warnings: false };
    let before = server.tables().modify_column_families(request).await.unwrap().into_inner();
    server.restart();
    assert_eq!(server.get("t").await.unwrap(), before);
    let table = server.api().tables().get(&name("t")).unwrap();
    assert_eq!(table.definition.splits, [b"k", b"x"]);
}

#[tokio::test]
async fn a_token_says_that_what_was_written_before_it_is_there() {
    let mut server = Server::start();
    server.create("t", &["f"]).await;
    server.write("t", b"r", "f", b"v");
    let token = token(&server, "t").await;
    assert!(consistent(&server, "t", &token).await.unwrap());
    server.restart();
    assert!(consistent(&server, "t", &token).await.unwrap(), "after a restart");
    for mode in [
        Mode::StandardReadRemoteWrites(StandardReadRemoteWrites {}),
        Mode::DataBoostReadLocalWrites(DataBoostReadLocalWrites {}),
    ] {
        let request = CheckConsistencyRequest {
            name: name("t"),
            consistency_token: token.clone(),
            mode: Some(mode),
        };
        assert!(server.tables().check_consistency(request).await.unwrap().into_inner().consistent);
    }
}

#[tokio::test]
async fn a_token_that_was_not_given_out_for_the_table_is_invalid() {
    let server = Server::start();
    for id in ["t", "u"] {
        server.create(id, &["f"]).await;
    }
    let token = token(&server, "t").await;
    let other = if token.as_bytes()[8] == b'A' { "B" } else { "A" };
    let forged = format!("{}{other}{}", &token[..8], &token[9..]);
    for bogus in ["", "bogus", "é", &forged, &format!("{token}A")] {
        refused(consistent(&server, "t", bogus).await, Code::InvalidArgument, "token");
    }
    refused(consistent(&server, "u", &token).await, Code::InvalidArgument, "token");
    refused(consistent(&server, "none", &token).await, Code::NotFound, &name("none"));
    // A new table of the same name is a different table.
    delete(&server, "t").await.unwrap();
    server.create("t", &["f"]).await;
    refused(consistent(&server, "t", &token).await, Code::InvalidArgument, "token");
    let missing = GenerateConsistencyTokenRequest { name: name("none") };
    let answer = server.tables().generate_consistency_token(missing).await;
    refused(answer, Code::NotFound, &name("none"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_make_a_table_of_one_name_exactly_one_succeeds() {
    let server = Server::start();
    for round in 0..8 {
        let id = format!("t{round}");
        let makers: Vec<_> = (1..9)
            .map(|maker| {
                let families = BTreeMap::from([("f".into(), versions(maker))]);
                let table = Table { column_families: families, ..Table::default() };
                let (mut client, request) = (server.tables(), request(&id, table));
                tokio::spawn(async move { client.create_table(request).await })
            })
            .collect();
        let mut created = Vec::new();
        for maker in makers {
            match maker.await.unwrap() {
                Ok(table) => created.push(table.into_inner()),
                Err(status) => assert_eq!(status.code(), Code::AlreadyExists, "{status}"),
            }
        }
        assert_eq!(created, [server.get(&id).await.unwrap()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_many_callers_to_one_table_are_all_kept() {
    let mut server = Server::start();
    server.create("t", &[]).await;
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let create = Mod::Create(ColumnFamily::default());
            let id = format!("f{caller}");
            let change = Modification { id, update_mask: None, r#mod: Some(create) };
            let request = ModifyColumnFamiliesRequest {
                name: name("t"),
                modifications: vec![change],
                ignore_warnings: false,
            };
            let mut client = server.tables();
            tokio::spawn(async move { client.modify_column_families(request).await })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(server.get("t").await.unwrap().column_families.len(), 16);
    server.restart();
    assert_eq!(server.get("t").await.unwrap().column_families.len(), 16);
}
