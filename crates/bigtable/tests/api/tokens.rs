//! Idempotency tokens are kept in a hidden family of the row: they commit with it,
//! outlive its deletes, and clients see nothing of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use stele_bigtable::proto::admin::drop_row_range_request::Target;
use stele_bigtable::proto::admin::modify_column_families_request::Modification;
use stele_bigtable::proto::admin::modify_column_families_request::modification::Mod;
use stele_bigtable::proto::admin::{
    DropRowRangeRequest, GetTableRequest, ModifyColumnFamiliesRequest,
};
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::mutation::{DeleteFromRow, Mutation};
use stele_bigtable::proto::v2::row_filter::Filter;
use tonic::Code;

use crate::admin::calls::plain;
use crate::data_calls::*;
use crate::server::Server;
use crate::writes::{add, aggregate};

const TOKEN_FAMILY: &str = "~tokens";

fn once(token: &str, request: v2::MutateRowRequest) -> v2::MutateRowRequest {
    let start_time = Some(SystemTime::now().into());
    let token = token.as_bytes().to_vec().into();
    v2::MutateRowRequest { idempotency: Some(v2::Idempotency { token, start_time }), ..request }
}

fn delete_row() -> v2::Mutation {
    mutation(Mutation::DeleteFromRow(DeleteFromRow {}))
}

fn everything() -> v2::ReadRowsRequest {
    v2::ReadRowsRequest { table_name: TABLE.into(), ..Default::default() }
}

async fn rows(client: &mut Client) -> Vec<String> {
    read(client, everything()).await.unwrap().into_iter().map(|(row, _)| row).collect()
}

async fn drop_rows(server: &Server, target: Target) {
    let request = DropRowRangeRequest { name: TABLE.into(), target: Some(target) };
    server.tables().drop_row_range(request).await.unwrap();
}

async fn modify(server: &Server, id: &str, change: Mod) -> Result<Vec<String>, tonic::Status> {
    let change = Modification { id: id.into(), r#mod: Some(change), update_mask: None };
    let request = ModifyColumnFamiliesRequest {
        name: TABLE.into(),
        modifications: vec![change],
        ..Default::default()
    };
    let table = server.tables().modify_column_families(request).await?.into_inner();
    Ok(table.column_families.into_keys().collect())
}

#[tokio::test]
async fn scale_6_10_clients_see_nothing_of_the_family_of_tokens() {
    let server = Server::with_table();
    let mut client = server.client();
    client.mutate_row(once("token-one", mutate("a", vec![set("f", "q", 0, "v")]))).await.unwrap();
    // A row without cells but with a token does not exist.
    client.mutate_row(once("token-two", mutate("b", vec![delete_row()]))).await.unwrap();
    assert!(
        server
            .store()
            .schema(server.api().tables().get(TABLE).unwrap().id)
            .unwrap()
            .find(TOKEN_FAMILY.as_bytes())
            .is_some()
    );
    assert_eq!(rows(&mut client).await, ["a"]);
    let range = v2::ColumnRange { family_name: TOKEN_FAMILY.into(), ..Default::default() };
    let named = Filter::FamilyNameRegexFilter(TOKEN_FAMILY.into());
    for filter in [named, Filter::ColumnRangeFilter(range)] {
        let filter = Some(v2::RowFilter { filter: Some(filter) });
        let request = v2::ReadRowsRequest { filter, ..everything() };
        let found = read(&mut client, request).await;
        assert!(found.map_or(true, |rows| rows.is_empty()));
    }
    let any = Some(v2::RowFilter { filter: Some(Filter::FamilyNameRegexFilter(".*".into())) });
    let found = read(&mut client, v2::ReadRowsRequest { filter: any, ..everything() }).await;
    assert_eq!(found.unwrap().len(), 1);
    let check = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "b".into(),
        true_mutations: vec![set("f", "q", 0, "v")],
        false_mutations: vec![set("g", "q", 0, "v")],
        ..Default::default()
    };
    let answer = client.check_and_mutate_row(check).await.unwrap().into_inner();
    assert!(!answer.predicate_matched, "the row had no cells");
    // Nor can it be written or declared.
    let request = mutate("a", vec![set(TOKEN_FAMILY, "q", 0, "v")]);
    assert_eq!(client.mutate_row(request).await.unwrap_err().code(), Code::NotFound);
    let create = modify(&server, TOKEN_FAMILY, Mod::Create(plain())).await;
    assert_eq!(create.unwrap_err().code(), Code::InvalidArgument);
    let drop = modify(&server, TOKEN_FAMILY, Mod::Drop(true)).await;
    assert_eq!(drop.unwrap_err().code(), Code::InvalidArgument);
    let table = GetTableRequest { name: TABLE.into(), ..Default::default() };
    let table = server.tables().get_table(table).await.unwrap().into_inner();
    let families: Vec<&String> = table.column_families.keys().collect();
    assert_eq!(families, ["f", "g", "max", "min", "sum"]);
    // Changes of the families leave the tokens alone.
    let families = modify(&server, "new", Mod::Create(plain())).await.unwrap();
    assert_eq!(families, ["f", "g", "max", "min", "new", "sum"]);
    modify(&server, "f", Mod::Drop(true)).await.unwrap();
    let again = once("token-one", mutate("a", vec![set("new", "q", 0, "v")]));
    client.mutate_row(again).await.unwrap();
    assert_eq!(rows(&mut client).await, ["b"]);
}

#[tokio::test]
async fn scale_6_10_a_token_outlives_the_deletes_of_its_row() {
    let mut server = Server::with_table();
    let mut client = server.client();
    let request = once("token-one", mutate("r", vec![delete_row(), set("f", "q", 0, "v")]));
    for _ in 0..2 {
        client.mutate_row(request.clone()).await.unwrap();
        assert_eq!(rows(&mut client).await, ["r"]);
    }
    // A delete after the writes, in the same request and in a later one.
    let ends = once("token-two", mutate("r", vec![set("f", "q", 0, "v"), delete_row()]));
    client.mutate_row(ends.clone()).await.unwrap();
    for request in [&request, &ends] {
        client.mutate_row(request.clone()).await.unwrap();
        assert_eq!(rows(&mut client).await, [""; 0]);
    }
    let third = once("token-three", mutate("r", vec![set("f", "q", 0, "v")]));
    client.mutate_row(third.clone()).await.unwrap();
    assert_eq!(rows(&mut client).await, ["r"]);
    drop_rows(&server, Target::RowKeyPrefix("r".into())).await;
    drop_rows(&server, Target::DeleteAllDataFromTable(true)).await;
    drop(client);
    server.restart();
    let mut client = server.client();
    for request in [request, ends, third] {
        client.mutate_row(request).await.unwrap();
        assert_eq!(rows(&mut client).await, [""; 0], "each was applied before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_6_10_the_first_tokens_of_a_table_may_come_at_once_and_with_other_changes() {
    let server = Server::with_table();
    let applied = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..40u64)
        .map(|number| {
            let (mut client, applied) = (server.client(), applied.clone());
            let request = mutate("r", vec![add("sum", 1)]);
            tokio::spawn(async move {
                // Ten tokens, each sent by three tasks, and ten writes without.
                let with_token = number % 4 != 0;
                let token = format!("token-{:04}", number / 4);
                let request = if with_token { once(&token, request) } else { request };
                client.mutate_row(request).await.unwrap();
                applied.fetch_add(u64::from(!with_token || number % 4 == 1), Ordering::Relaxed);
            })
        })
        .collect();
    for number in 0..5 {
        modify(&server, &format!("new{number}"), Mod::Create(plain())).await.unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(applied.load(Ordering::Relaxed), 20);
    let found = read(&mut server.client(), everything()).await.unwrap();
    assert_eq!(found, [("r".to_string(), vec![aggregate("sum", 20)])]);
}

#[tokio::test]
async fn scale_6_10_an_invalid_token_changes_neither_row_nor_table() {
    let server = Server::with_table();
    let mut client = server.client();
    let request = once("short", mutate("r", vec![set("f", "q", 0, "v")]));
    assert_eq!(client.mutate_row(request).await.unwrap_err().code(), Code::InvalidArgument);
    let table = server.api().tables().get(TABLE).unwrap();
    assert!(!table.definition.keeps_tokens);
    assert_eq!(rows(&mut client).await, [""; 0]);
}
