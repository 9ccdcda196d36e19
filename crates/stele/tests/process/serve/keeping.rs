//! Which data survives a restart and which does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::secure::{Authority, save};
use crate::support::{Server, command, make_table, refused, rows, write};

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
        let server = Server::with_data(dir.path(), &[]);
        assert_eq!(rows(&server).await.len(), life);
        let row = format!("row-{life}");
        server.client().await.mutate_row(write(&row, b"x".to_vec())).await.unwrap();
        assert!(server.terminate().status.success());
        let verified = command(&["engine", "verify", dir.path().to_str().unwrap()]).output();
        assert_eq!(verified.unwrap().status.code(), Some(0));
    }
}

#[test]
fn only_the_user_of_the_server_may_read_its_data() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("wide");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::with_data(&dir, &["--metastore-port", "0"]);
    let mut left = vec![dir];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen} files and directories");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.ready["pid"])).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = Authority::new().sign();
    let (cert, key) = (save(dir.path(), "cert", &cert), save(dir.path(), "key", &key));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let args = ["serve", "--ephemeral", "--tls-cert", &cert, "--tls-key", &key, "--grpc-port", "0"];
    let printed = refused(command(&args).args(["--http-port", "off"]));
    assert!(printed.contains("--tls-key") && printed.contains("chmod 600"), "{printed}");
}
