//! The cluster as operators see and lead it: `stele metastore status` and `move-leader`,
//! and etcd's MoveLeader.

use std::process::Command;

use serde_json::Value;
use stele_metastore::client::Error;
use stele_metastore::proto::etcd::{MoveLeaderRequest, MoveLeaderResponse};

use super::members::{Members, NAMES, until};
use crate::support::{Commands, command};

/// Commands to one member.
pub struct Member(pub u16);

impl Commands for Member {
    fn command(&self, args: &[&str]) -> Command {
        let mut all = command(&["metastore"]);
        all.args(args).env("STELE_METASTORE", format!("127.0.0.1:{}", self.0));
        all
    }
}

impl Member {
    /// Returns the members as `status` has them, and its exit code.
    pub fn status(&self) -> (Vec<Value>, Option<i32>) {
        let output = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        (status["members"].as_array().unwrap().clone(), output.status.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_cluster_is_shown_and_led_from_any_member() {
    let mut cluster = Members::start().await;
    let at = cluster.client_ports.map(Member);
    let leader = cluster.leader().await;
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    // A member has a name once it has published it.
    until("every member answers under its name", async || {
        let (members, code) = at[follower].status();
        code == Some(0) && members.iter().all(|member| member["name"].is_string())
    })
    .await;
    let (members, _) = at[follower].status();
    assert_eq!(members.len(), 3);
    for member in &members {
        let name = member["name"].as_str().unwrap();
        assert!(NAMES.contains(&name), "{member}");
        assert_eq!(member["leads"], name == NAMES[leader], "{member}");
        assert!(member["lag"].is_u64() && member["version"].is_string(), "{member}");
    }
    let table = at[follower].ok(&["status"]);
    assert_eq!(table.matches("follower").count(), 2, "{table}");

    // Leadership moves to a name, wherever it is asked for.
    let moved = at[third].ok(&["move-leader", NAMES[follower]]);
    assert!(moved.ends_with(&format!("({}) is the leader\n", NAMES[follower])), "{moved}");
    assert_eq!(cluster.leader().await, follower);
    assert!(at[third].fails(2, &["move-leader", "nobody"]).contains("not found"));
    let stranger = at[third].fails(2, &["move-leader", "1"]);
    assert!(stranger.contains("bad leader transferee"), "{stranger}");
    // etcd's own call is refused by a follower.
    let move_by_etcd = async |member: usize, target_id: u64| {
        let path = "/etcdserverpb.Maintenance/MoveLeader";
        let client = cluster.client(member);
        let moved =
            client.call_etcd::<_, MoveLeaderResponse>(path, MoveLeaderRequest { target_id });
        match moved.await {
            Ok(_) => String::new(),
            Err(Error::Refused { message, .. }) => message,
            Err(error) => panic!("{error}"),
        }
    };
    let third_id = cluster.id(third);
    assert_eq!(move_by_etcd(leader, third_id).await, "not leader");
    assert_eq!(move_by_etcd(follower, 1).await, "bad leader transferee");
    assert_eq!(move_by_etcd(follower, third_id).await, "");
    assert_eq!(cluster.leader().await, third);

    // A member that does not answer is a row with its error.
    cluster.kill(leader);
    let (members, code) = at[follower].status();
    assert_eq!(code, Some(1));
    for member in &members {
        let gone = member["name"] == NAMES[leader];
        assert_eq!(member["error"].is_string(), gone, "{member}");
    }
    let output = at[follower].run(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("connect"), "the error is shown");
}
