//! `stele metastore` as people and scripts use it, against a member in the test's
//! process.

use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use stele_engine::world::World;
use stele_metastore::native::Native;
use stele_metastore::{Node, node};
use tonic::service::Routes;

use crate::support::{Commands, Hosted, command};

struct Served(Hosted);

impl Commands for Served {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&[&["metastore"], args].concat());
        command.env("STELE_METASTORE", &self.0.address);
        command
    }
}

impl Served {
    fn new() -> Served {
        Served(Hosted::new(async |dir| {
            let mut settings = node::NodeSettings::new(dir.join("metastore"), World::real());
            let location = dir.join("backups").display().to_string();
            settings.backup = Some(node::BackupSettings { location, every: None, keep: 7 });
            let node = Node::open(settings).await.unwrap();
            Routes::new(Native::new(Arc::new(node)).service())
        }))
    }

    fn json(&self, args: &[&str]) -> Value {
        let line = self.ok(&[args, &["--json"]].concat());
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }
}

#[test]
fn keys_are_put_got_and_deleted() {
    let served = Served::new();
    assert_eq!(served.ok(&["put", "a/1", "one"]), "put at revision 2\n");
    served.ok(&["put", "a/2", "\\x00two"]);
    assert_eq!(served.ok(&["get", "a/1"]), "a/1\tone\n");
    assert_eq!(served.ok(&["get", "a/", "--prefix"]), "a/1\tone\na/2\t\\x00two\n");
    served.ok(&["put", "a/1", "new"]);
    assert_eq!(served.ok(&["get", "a/1", "--at-revision", "2"]), "a/1\tone\n");
    let found = served.json(&["get", "a/1"]);
    assert_eq!((&found["value"], &found["version"]), (&json!("bmV3"), &json!(2)));
    assert_eq!(served.ok(&["del", "a/", "--prefix"]), "deleted 2 keys\n");
    assert_eq!(served.fails(1, &["get", "a/1"]), "");
    assert_eq!(served.run(&["del", "a/1"]).status.code(), Some(1));
    assert!(served.fails(2, &["get", "a", "--at-revision", "99"]).contains("future revision"));
}

#[test]
fn a_transaction_happens_only_when_everything_is_as_expected() {
    let served = Served::new();
    served.ok(&["txn", "--if-absent", "leader", "--put", "leader=one", "--put", "since=now"]);
    let printed = served.fails(1, &["txn", "--if-absent", "leader", "--put", "leader=two"]);
    assert!(printed.contains("a condition does not hold"), "{printed}");
    served.ok(&["txn", "--if", "leader=one", "--put", "leader=two", "--del", "since"]);
    assert_eq!(served.ok(&["get", "--all"]), "leader\ttwo\n");
    assert!(served.fails(2, &["txn", "--if", "a=b"]).contains("writes nothing"));
}

#[test]
fn changes_are_watched_from_a_revision_on() {
    let served = Served::new();
    served.ok(&["put", "k", "1"]);
    served.ok(&["del", "k"]);
    let printed = served.ok(&["watch", "k", "--from-revision", "2", "--count", "2"]);
    assert_eq!(printed, "2\tput\tk\t1\n3\tdelete\tk\n");
}

#[test]
fn leases_are_granted_shown_and_revoked() {
    let served = Served::new();
    let granted = served.json(&["lease", "grant", "60"]);
    assert_eq!(granted["ttl"], 60);
    let id = granted["lease"].as_str().unwrap().to_string();
    served.ok(&["put", "k", "v", "--lease", &id]);
    assert_eq!(served.json(&["get", "k"])["lease"], id.as_str());
    assert_eq!(served.json(&["lease", "show", &id])["keys"], json!(["aw=="]));
    served.ok(&["lease", "keep-alive", &id, "--once"]);
    assert_eq!(served.ok(&["lease", "list"]), format!("{id}\n"));
    served.ok(&["lease", "revoke", &id]);
    assert_eq!(served.run(&["get", "k"]).status.code(), Some(1));
    assert!(served.fails(2, &["lease", "keep-alive", &id, "--once"]).contains("ended"));
}

#[test]
fn a_lock_is_held_while_a_command_runs() {
    let served = Served::new();
    assert_eq!(served.run(&["lock", "l"]).status.code(), Some(1), "it is free");
    let mut first = served
        .command(&["lock", "l", "--", "sh", "-c", "echo $STELE_LOCK_TOKEN; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut token = String::new();
    let mut out = std::io::BufReader::new(first.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut token).unwrap();
    let held = served.json(&["lock", "l"]);
    assert_eq!(held["holders"][0]["token"].to_string(), token.trim());
    assert!(
        served
            .fails(2, &["lock", "l", "--no-wait", "--", "true"])
            .contains("held by another session")
    );
    drop(first.stdin.take());
    // `read` reaches the end of its input, so the command fails.
    assert_eq!(first.wait().unwrap().code(), Some(2));
    served.ok(&["lock", "l", "--", "true"]);
    assert_eq!(served.run(&["lock", "l"]).status.code(), Some(1), "it is free again");
}

#[test]
fn the_status_tells_who_leads_and_how_far_history_goes() {
    let served = Served::new();
    served.ok(&["put", "k", "v"]);
    let status = served.ok(&["status"]);
    assert!(status.contains("this member is the leader"), "{status}");
    assert!(status.contains("from revision 1 of 20"), "{status}");
    served.ok(&["compact", "2"]);
    let status = served.json(&["status"]);
    assert_eq!((&status["revision"], &status["compacted"]), (&json!(2), &json!(2)));
    assert_eq!(status["leader_id"], status["member_id"]);
}

#[test]
fn quotas_are_set_listed_and_deleted() {
    let served = Served::new();
    served.ok(&["put", "a/1", "one"]);
    assert_eq!(served.ok(&["quota", "set", "a/", "--keys", "1"]), "quota of a/ set\n");
    assert_eq!(served.ok(&["quota", "list"]), "a/\t1 keys of 1\t6 B no limit\n");
    assert!(served.fails(2, &["put", "a/2", "two"]).contains("quota of prefix \"a/\" exceeded"));
    served.ok(&["quota", "set", "a/", "--bytes", "1KiB"]);
    served.ok(&["put", "a/2", "two"]);
    let listed = served.json(&["quota", "list"]);
    assert_eq!((&listed["keys"], &listed["bytes_max"]), (&json!(2), &json!(1024)));
    assert_eq!(served.ok(&["quota", "delete", "a/"]), "quota of a/ deleted\n");
    assert!(served.fails(2, &["quota", "delete", "a/"]).contains("no quota of prefix"));
    assert!(served.fails(2, &["quota", "set", "a/"]).contains("--keys"));
}

#[test]
fn the_level_is_shown_and_raised_no_further_than_the_server_knows() {
    let served = Served::new();
    assert_eq!(served.ok(&["level"]), "level 3; this member speaks levels up to 3\n");
    assert_eq!(served.ok(&["level", "--raise", "3"]), "the metastore is at level 3\n");
    assert!(served.fails(2, &["level", "--raise", "9"]).contains("feature level 9 is unknown"));
}

#[test]
fn a_backup_is_created_listed_verified_and_restored() {
    let served = Served::new();
    let dir = tempfile::tempdir().unwrap();
    served.ok(&["put", "k", "1"]);
    let full = served.json(&["backup", "create"]);
    assert_eq!((&full["kind"], &full["revision"]), (&json!("full"), &json!(2)));
    served.ok(&["put", "k", "2"]);
    let delta = served.json(&["backup", "create"]);
    assert_eq!((&delta["kind"], &delta["changes"]), (&json!("delta"), &json!(1)));
    assert!(served.ok(&["backup", "create"]).starts_with("unchanged since delta-"));
    let from = full["location"].as_str().unwrap();
    assert_eq!(served.ok(&["backup", "list", "--from", from]).lines().count(), 2);
    let verified = served.ok(&["backup", "verify", "--from", from]);
    assert!(verified.starts_with("sound: 2 files"), "{verified}");
    let data = dir.path().join("new");
    let data = data.to_str().unwrap();
    let printed = served.ok(&[
        "restore",
        "--from",
        from,
        "--at-revision",
        "2",
        "--data",
        data,
        "--new-cluster",
    ]);
    assert!(printed.contains("restored 1 key") && printed.contains("at revision 2"), "{printed}");
    let refused = served.fails(2, &["restore", "--from", from, "--data", data]);
    assert!(refused.contains("already exists"), "{refused}");
    let printed = served.ok(&["recover", "--data", data]);
    assert!(printed.contains("nothing was changed"), "{printed}");
    let printed = served.ok(&["recover", "--data", data, "--yes"]);
    assert!(printed.contains("only member of the new cluster"), "{printed}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let served = Served::new();
    let output = served.command(&["status"]).env("STELE_METASTORE", "127.0.0.1:1").output();
    let printed = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(printed.contains("no metastore answers at http://127.0.0.1:1"), "{printed}");
}
