//! Startup: the readiness message and the addresses.

use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Server, command, ping, refused, spawn};
use rustix::process::{Pid, Signal, kill_process};
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;

#[tokio::test]
async fn a_server_says_once_that_it_is_ready_and_then_it_is() {
    let server = Server::start(&["--ephemeral"]);
    server.assert_healthy().await;
    assert_eq!(server.get("/health"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(server.ready["ready"], true);
    let grpc = server.address("grpc");
    let ended = server.terminate();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout, "", "one line on standard output");
    let export = format!("export BIGTABLE_EMULATOR_HOST={grpc}\n");
    assert!(ended.stderr.contains(&export), "{}", ended.stderr);
}

#[tokio::test]
async fn a_port_that_is_off_does_not_listen() {
    // The last of several flags takes effect.
    let only_grpc = Server::start(&["--ephemeral", "--http-port=off", "--listen=localhost"]);
    assert!(only_grpc.ready["http"].is_null());
    only_grpc.assert_healthy().await;
    let mut only_http = command(&["serve", "--ephemeral", "--grpc-port=off", "--http-port=0"]);
    only_http.env("STELE_LISTEN", "127.0.0.1");
    let server = Server::spawn(only_http);
    assert!(server.ready["grpc"].is_null());
    assert_eq!(server.get("/health").1, "ok\n");
    assert!(server.get("/").1.contains("Stele"));
    assert!(server.get("/nothing").0.contains("404"));
    let printed = refused(&mut command(&["serve", "--grpc-port=off", "--http-port=off"]));
    assert!(printed.contains("nothing would listen"), "{printed}");
}

#[test]
fn a_busy_port_says_which_flag_moves_it() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    for (flag, other) in [("--grpc-port", "--http-port"), ("--http-port", "--grpc-port")] {
        let printed = refused(&mut command(&["serve", "--ephemeral", flag, &port, other, "0"]));
        assert!(
            printed.contains(&port) && printed.contains(flag) && !printed.contains(other),
            "{printed}"
        );
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let printed = refused(&mut command(&["serve", "--ephemeral", "--listen", "192.0.2.1"]));
    assert!(printed.contains("192.0.2.1 (--listen)"), "{printed}");
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with_data(dir.path(), &[]);
    let data = server.data().to_string();
    let printed =
        refused(&mut command(&["serve", "--data", &data, "--grpc-port=0", "--http-port=0"]));
    assert!(printed.contains("in use by another process") && printed.contains(&data), "{printed}");
}

#[tokio::test]
async fn the_emulator_takes_the_flags_and_says_the_line_of_googles() {
    for flags in [&["-host", "127.0.0.1", "-port", "0"][..], &["--host-port=127.0.0.1:0"]] {
        let mut emulator = command(&["emulator"]);
        emulator.args(flags).stderr(Stdio::piped());
        let (mut child, line, rest, _) = spawn(emulator);
        let address = line.strip_prefix("Cloud Bigtable emulator running on ").unwrap().trim();
        let mut client = BigtableClient::connect(format!("http://{address}")).await.unwrap();
        client.ping_and_warm(ping()).await.unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(rest.recv().unwrap(), "");
        assert!(child.wait().unwrap().success());
    }
    let printed = refused(&mut command(&["emulator", "-dir", "x"]));
    assert!(printed.contains("-dir"), "{printed}");
}
