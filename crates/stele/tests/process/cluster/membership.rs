//! Members that are added and removed as an operator does it.

use serde_json::Value;

use super::commands::Member;
use super::members::{Members, free_port, until};
use crate::support::{Commands, Server};

/// Adds a member, waits until it is a voter, and returns it with its id.
async fn add(cluster: &Members, at: &Member, peer_port: u16, client_port: u16) -> (Server, String) {
    let url = format!("http://127.0.0.1:{peer_port}");
    let added = at.ok(&["member", "add", "--learner", "--peer-urls", &url, "--json"]);
    let added: Value = serde_json::from_str(&added).unwrap();
    let id = added["id"].as_str().unwrap().to_string();
    let server = Server::spawn(cluster.command_to_join("d", peer_port, client_port));
    // A learner answers only for itself.
    let learner = Member(client_port);
    assert_eq!(learner.status().0.len(), 4);
    for args in [&["get", "k"][..], &["put", "k", "v"], &["history", "k"]] {
        let refused = learner.fails(2, args);
        assert!(refused.contains("rpc not supported for learner"), "{refused}");
    }
    until("it is promoted", async || at.run(&["member", "promote", &id]).status.success()).await;
    (server, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_removed_right_after_its_promotion_stops_and_says_why() {
    let cluster = Members::start().await;
    let leader = cluster.leader().await;
    let at = Member(cluster.client_ports[(leader + 1) % 3]);
    until("all have published their names", async || {
        let members = at.status().0;
        members.iter().all(|member| member["name"].is_string())
    })
    .await;
    let [peer_port, client_port] = [free_port(), free_port()];
    let (server, id) = add(&cluster, &at, peer_port, client_port).await;
    at.ok(&["member", "remove", &id]);
    let sentence = format!("member {id} has been removed from the cluster");
    // Neither does it stay when it is started again.
    let again = || Server::spawn(cluster.command_to_join("d", peer_port, client_port));
    for exit in [server.wait(), again().wait()] {
        assert!(!exit.status.success());
        assert!(exit.stderr.contains(&sentence), "{}", exit.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_moves_to_another_address_while_the_others_work() {
    let mut cluster = Members::start().await;
    let leader = cluster.leader().await;
    let (moves, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let at = Member(cluster.client_ports[other]);
    until("all have published their names", async || {
        let members = at.status().0;
        members.iter().all(|member| member["name"].is_string())
    })
    .await;
    cluster.terminate(moves);
    let port = free_port();
    let (id, url) = (format!("{:x}", cluster.id(moves)), format!("http://127.0.0.1:{port}"));
    at.ok(&["member", "update", &id, "--peer-urls", &url]);
    at.ok(&["put", "k", "while it moves"]);
    cluster.restart_at(moves, port);
    // Only the new address leads to it.
    cluster.catch_up(moves, leader).await;
    until("the others reach it", async || {
        let (members, code) = at.status();
        code == Some(0) && members.iter().any(|member| member["peer_url"] == url.as_str())
    })
    .await;
    let read = Member(cluster.client_ports[moves]).ok(&["get", "k"]);
    assert!(read.contains("while it moves"), "{read}");
    cluster.assert_equal().await;
}
