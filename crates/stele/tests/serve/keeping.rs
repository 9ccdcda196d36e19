//! What is kept and what is not.

use std::fs;

use crate::server::{Server, command, make_table, rows, write};

#[tokio::test]
async fn ephemeral_data_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut ephemeral = command(&["serve", "--ephemeral", "--grpc-port=0", "--http-port=0"]);
    ephemeral.env("TMPDIR", temporary.path());
    let server = Server::spawn(ephemeral);
    server.assert_healthy().await;
    assert!(server.data().starts_with(temporary.path().to_str().unwrap()));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    assert!(server.terminate().status.success());
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_store_that_was_served_is_sound_and_served_again() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    for life in 0..3 {
        let server = Server::of(dir.path(), &[]);
        assert_eq!(rows(&server).await.len(), life);
        let row = format!("row-{life}");
        server.client().await.mutate_row(write(&row, b"x".to_vec())).await.unwrap();
        assert!(server.terminate().status.success());
        let verified = command(&["engine", "verify", dir.path().to_str().unwrap()]).output();
        assert_eq!(verified.unwrap().status.code(), Some(0));
    }
}
