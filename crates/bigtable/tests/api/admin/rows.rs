//! DropRowRange: rows are deleted when it returns, and can be written again.

use bytes::Bytes;
use stele_bigtable::proto::admin::DropRowRangeRequest;
use stele_bigtable::proto::admin::drop_row_range_request::Target;
use tonic::{Code, Response, Status};

use super::calls::{name, refused};
use crate::server::Server;

async fn drop_rows(server: &Server, id: &str, target: Option<Target>) -> Result<(), Status> {
    let request = DropRowRangeRequest { name: name(id), target };
    server.tables().drop_row_range(request).await.map(Response::into_inner)
}

fn prefix(prefix: &[u8]) -> Option<Target> {
    Some(Target::RowKeyPrefix(Bytes::copy_from_slice(prefix)))
}

async fn filled(rows: &[&[u8]]) -> Server {
    let server = Server::start();
    server.create("t", &["f"]).await;
    for row in rows {
        server.write("t", row, "f", b"v");
    }
    server
}

#[tokio::test]
async fn rows_with_a_prefix_are_gone_for_good_and_can_be_written_again() {
    let mut server = filled(&[b"a", b"ab", b"ab1", b"ac", b"b"]).await;
    let table = server.api().tables().get(&name("t")).unwrap().id;
    server.store().flush(table).unwrap();
    drop_rows(&server, "t", prefix(b"ab")).await.unwrap();
    assert_eq!(server.cells("t"), ["a/f=v", "ac/f=v", "b/f=v"]);
    server.write("t", b"ab1", "f", b"new");
    server.restart();
    assert_eq!(server.cells("t"), ["a/f=v", "ab1/f=new", "ac/f=v", "b/f=v"]);
}

#[tokio::test]
async fn a_prefix_of_the_last_bytes_reaches_to_the_end() {
    let server = filled(&[b"\xfe", b"\xff", b"\xff\xff", b"\xff\xff\x01", b"\xff\xff\xff"]).await;
    drop_rows(&server, "t", prefix(b"\xff\xff")).await.unwrap();
    assert_eq!(server.cells("t"), ["\\xfe/f=v", "\\xff/f=v"]);
    drop_rows(&server, "t", prefix(b"\xff")).await.unwrap();
    assert_eq!(server.cells("t"), ["\\xfe/f=v"]);
}

#[tokio::test]
async fn a_whole_table_is_emptied_by_one_commit_and_stays() {
    let mut server = filled(&[b"\0", b"a", b"\xff"]).await;
    let before = server.store().progress().1;
    drop_rows(&server, "t", Some(Target::DeleteAllDataFromTable(true))).await.unwrap();
    let after = server.store().progress().0;
    assert_eq!(after, before.next(), "one commit, and a durable one");
    assert!(server.cells("t").is_empty());
    server.restart();
    assert!(server.cells("t").is_empty());
    server.write("t", b"a", "f", b"again");
    assert_eq!(server.cells("t"), ["a/f=again"]);
}

#[tokio::test]
async fn dropping_all_rows_set_to_false_drops_none() {
    let server = filled(&[b"a"]).await;
    drop_rows(&server, "t", Some(Target::DeleteAllDataFromTable(false))).await.unwrap();
    assert_eq!(server.cells("t"), ["a/f=v"]);
}

#[tokio::test]
async fn a_request_that_names_no_rows_is_refused() {
    let server = filled(&[b"a"]).await;
    refused(drop_rows(&server, "t", None).await, Code::InvalidArgument, "row_key_prefix");
    refused(drop_rows(&server, "t", prefix(b"")).await, Code::InvalidArgument, "row_key_prefix");
    let long = prefix(&[b'a'; 4097]);
    refused(drop_rows(&server, "t", long).await, Code::InvalidArgument, "row_key_prefix");
    refused(drop_rows(&server, "none", prefix(b"a")).await, Code::NotFound, &name("none"));
    let malformed = DropRowRangeRequest { name: "t".into(), target: prefix(b"a") };
    let answer = server.tables().drop_row_range(malformed).await;
    refused(answer, Code::InvalidArgument, "expected in the form");
    assert_eq!(server.cells("t"), ["a/f=v"]);
}
