//! GetTable and ListTables: views, order and pagination.

use stele_bigtable::proto::admin::encryption_info::EncryptionType;
use stele_bigtable::proto::admin::table::View;
use stele_bigtable::proto::admin::table::cluster_state::ReplicationState;
use stele_bigtable::proto::admin::{
    ColumnFamily, GetTableRequest, ListTablesRequest, ListTablesResponse, Table,
};
use tonic::{Code, Response, Status};

use super::calls::{PARENT, name, plain, refused, request};
use crate::server::Server;

async fn list(server: &Server, request: ListTablesRequest) -> Result<ListTablesResponse, Status> {
    server.tables().list_tables(request).await.map(Response::into_inner)
}

fn list_request(view: View, page_size: i32, page_token: &str) -> ListTablesRequest {
    ListTablesRequest {
        parent: PARENT.into(),
        view: view.into(),
        page_size,
        page_token: page_token.into(),
    }
}

fn ids(response: &ListTablesResponse) -> Vec<&str> {
    let prefix = format!("{PARENT}/tables/");
    response.tables.iter().map(|table| table.name.strip_prefix(&prefix).unwrap()).collect()
}

#[tokio::test]
async fn each_view_shows_its_part_of_a_table() {
    let server = Server::start();
    let declared = Table { deletion_protection: true, ..Table::default() };
    server.tables().create_table(request("t", declared)).await.unwrap();
    let get = async |view: View| {
        let request = GetTableRequest { name: name("t"), view: view.into() };
        server.tables().get_table(request).await.unwrap().into_inner()
    };
    assert_eq!(get(View::Unspecified).await, get(View::SchemaView).await);
    assert_eq!(get(View::NameOnly).await, Table { name: name("t"), ..Table::default() });
    let schema = get(View::SchemaView).await;
    assert!(schema.deletion_protection && schema.granularity == 1);
    assert!(schema.cluster_states.is_empty());

    for (view, encrypted) in
        [(View::ReplicationView, false), (View::EncryptionView, true), (View::Full, true)]
    {
        let table = get(view).await;
        assert_eq!(table.granularity == 1, view == View::Full);
        let states: Vec<_> = table.cluster_states.into_iter().collect();
        let [(cluster, state)] = &states[..] else { panic!("{states:?}") };
        assert_eq!(cluster, "i-c1");
        assert_eq!(state.replication_state(), ReplicationState::Ready);
        let kinds: Vec<_> = state.encryption_info.iter().map(|e| e.encryption_type()).collect();
        let expected = [EncryptionType::GoogleDefaultEncryption];
        assert_eq!(kinds, if encrypted { &expected[..] } else { &[] });
    }
    let unknown = GetTableRequest { name: name("t"), view: 77 };
    refused(server.tables().get_table(unknown).await, Code::InvalidArgument, "view");
}

#[tokio::test]
async fn a_missing_table_is_not_found_and_a_malformed_name_is_invalid() {
    let server = Server::start();
    refused(server.get("none").await, Code::NotFound, &name("none"));
    let malformed = GetTableRequest { name: "tables/t".into(), ..GetTableRequest::default() };
    let answer = server.tables().get_table(malformed).await;
    refused(answer, Code::InvalidArgument, "expected in the form");
}

#[tokio::test]
async fn tables_of_one_instance_are_listed_by_name() {
    let server = Server::start();
    for id in ["b", "a", "C"] {
        server.create(id, &["f"]).await;
    }
    let mut elsewhere = request("d", Table::default());
    elsewhere.parent = format!("{PARENT}i");
    server.tables().create_table(elsewhere).await.unwrap();

    let names = list(&server, list_request(View::Unspecified, 0, "")).await.unwrap();
    assert_eq!(ids(&names), ["C", "a", "b"]);
    assert!(names.tables.iter().all(|table| table.column_families.is_empty()));
    assert_eq!(names.next_page_token, "");
    let full = list(&server, list_request(View::Full, 0, "")).await.unwrap();
    for table in full.tables {
        assert_eq!(table.column_families["f"], plain());
        assert!(table.cluster_states.contains_key("i-c1"));
    }
    let nowhere = ListTablesRequest {
        parent: "projects/p/instances/unknown".into(),
        ..ListTablesRequest::default()
    };
    assert_eq!(list(&server, nowhere).await.unwrap(), ListTablesResponse::default());
}

#[tokio::test]
async fn pages_cover_each_table_once_while_tables_come_and_go() {
    let server = Server::start();
    for id in ["a", "b", "c", "d", "e"] {
        server.create(id, &[]).await;
    }
    let first = list(&server, list_request(View::NameOnly, 2, "")).await.unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    // Delete the last table of the page, and create one before it.
    server.api().tables().drop_table(&name("b")).unwrap();
    server.create("aa", &[]).await;
    let second =
        list(&server, list_request(View::NameOnly, 2, &first.next_page_token)).await.unwrap();
    assert_eq!(ids(&second), ["c", "d"]);
    let last =
        list(&server, list_request(View::NameOnly, 2, &second.next_page_token)).await.unwrap();
    assert_eq!(ids(&last), ["e"]);
    assert_eq!(last.next_page_token, "");
    let exactly = list(&server, list_request(View::NameOnly, 5, "")).await.unwrap();
    assert_eq!((exactly.tables.len(), exactly.next_page_token.as_str()), (5, ""));
}

#[tokio::test]
async fn pages_that_were_never_offered_are_refused() {
    let server = Server::start();
    for id in ["a", "b"] {
        server.create(id, &[]).await;
    }
    let negative = list(&server, list_request(View::NameOnly, -1, "")).await;
    refused(negative, Code::InvalidArgument, "page_size");
    for token in ["?", "bogus", "é", &"A".repeat(5000)] {
        let answer = list(&server, list_request(View::NameOnly, 0, token)).await;
        refused(answer, Code::InvalidArgument, "page_token");
    }
    let first = list(&server, list_request(View::NameOnly, 1, "")).await.unwrap();
    let other = ListTablesRequest {
        parent: "projects/p/instances/other".into(),
        page_token: first.next_page_token,
        ..ListTablesRequest::default()
    };
    refused(list(&server, other).await, Code::InvalidArgument, "page_token");
    let view = ListTablesRequest { view: 99, ..list_request(View::NameOnly, 0, "") };
    refused(list(&server, view).await, Code::InvalidArgument, "view");
}

#[tokio::test]
async fn a_page_stays_within_what_every_client_takes() {
    let server = Server::start();
    let families = |n: usize| (0..n).map(|at| (format!("{at:064}"), ColumnFamily::default()));
    for id in ["a", "b", "c"] {
        let table = Table { column_families: families(9000).collect(), ..Table::default() };
        server.tables().create_table(request(id, table)).await.unwrap();
    }
    let first = list(&server, list_request(View::SchemaView, 0, "")).await.unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    let rest =
        list(&server, list_request(View::SchemaView, 0, &first.next_page_token)).await.unwrap();
    assert_eq!(ids(&rest), ["c"]);
}

/// Some clients (Node) cannot parse a map entry without a value, and prost omits
/// empty values.
#[tokio::test]
async fn a_family_without_settings_has_a_value_on_the_wire() {
    let server = Server::start();
    let column_families = [("plain".to_string(), ColumnFamily::default())].into();
    let declared = Table { column_families, ..Table::default() };
    let created = server.tables().create_table(request("t", declared)).await.unwrap().into_inner();
    let listed = list(&server, list_request(View::Full, 0, "")).await.unwrap().tables;
    for table in [created, server.get("t").await.unwrap(), listed[0].clone()] {
        assert_eq!(table.column_families["plain"], plain());
    }
}
