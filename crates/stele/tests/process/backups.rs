//! Backups, restored and deleted tables as operators use them, against a server process
//! that is also killed.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Commands, Server, command, make_table, refused, until, write};

struct Served(Server);

impl Commands for Served {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("STELE_ENDPOINT", self.0.address("grpc"));
        command.env("STELE_PROJECT", "p").env("STELE_INSTANCE", "i");
        command
    }
}

impl Served {
    fn open(dir: &Path, args: &[&str]) -> Served {
        Served(Server::with_data(dir, args))
    }

    /// Starts a server with a table `t` of two rows.
    async fn new(dir: &Path) -> Served {
        make_table(dir);
        let served = Served::open(dir, &[]);
        served.put(&["a", "b"]).await;
        served
    }

    async fn put(&self, rows: &[&str]) {
        let mut client = self.0.client().await;
        for row in rows {
            client.mutate_row(write(row, vec![b'v'; 100])).await.unwrap();
        }
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    fn refuses(&self, args: &[&str]) -> String {
        refused(&mut self.command(args))
    }

    /// Returns the number of rows of a table.
    fn count(&self, table: &str) -> String {
        self.ok(&["count", table])
    }
}

#[tokio::test]
async fn a_table_is_backed_up_dropped_restored_and_undeleted() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    let two = served.count("t");
    let create = ["table", "backup", "create", "t", "monday", "--expire", "30d"];
    assert_eq!(served.ok(&create), "created backup monday of table t\n");
    let hint = served.refuses(&create);
    assert!(hint.contains("backup monday already exists"), "{hint}");
    served.put(&["c"]).await;
    assert_eq!(served.ok(&["table", "drop", "t", "--yes"]), "deleted table t\n");
    assert_eq!(served.ok(&["table", "list"]), "");
    let shown = served.ok(&["table", "backup", "list"]);
    let lines: Vec<_> = shown.lines().collect();
    let columns = ["backup", "table", "created", "expires", "tablets", "size"];
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), columns);
    let monday = lines[1].trim_start().starts_with("monday ");
    assert!(monday && lines[2] == "1 backup", "{shown}");
    let shown = served.ok(&["table", "backup", "show", "monday"]);
    assert!(shown.starts_with("backup monday of table projects/p/instances/i/tables/t\n"));
    assert_eq!(
        served.ok(&["table", "restore", "monday", "copy"]),
        "restored backup monday as table copy\n"
    );
    assert_eq!(served.count("copy"), two);
    served.ok(&["set", "copy", "z", "f:q=1"]);
    let deleted = served.json(&["table", "list", "--deleted"]);
    assert_eq!(deleted["tables"][0]["name"], "t");
    assert!(served.ok(&["table", "list", "--deleted"]).ends_with("1 deleted table\n"));
    assert_eq!(served.ok(&["table", "undelete", "t"]), "undeleted table t\n");
    assert_ne!(served.count("t"), two, "with the row that was written after the backup");
    assert!(served.refuses(&["table", "undelete", "t"]).contains("--deleted"));
    assert!(served.refuses(&["table", "backup", "show", "no"]).contains("backup list"));
    let done = served.json(&["table", "backup", "delete", "monday", "--yes"]);
    assert_eq!(done, json!({"backup": "monday", "deleted": true}));
    assert_eq!(served.json(&["table", "backup", "list"]), json!({"backups": []}));
    assert!(served.0.terminate().status.success());
    let report = command(&["engine", "verify", &dir.path().display().to_string()]).output();
    assert_eq!(report.unwrap().status.code(), Some(0));
}

#[tokio::test]
async fn backups_and_deleted_tables_survive_a_kill_at_any_step() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    let two = served.count("t");
    let kill = |served: Served, args: &[&str]| {
        served.0.kill();
        Served::open(dir.path(), args)
    };
    served.ok(&["table", "backup", "create", "t", "b"]);
    let served = kill(served, &[]);
    served.ok(&["table", "drop", "t", "--yes"]);
    let served = kill(served, &[]);
    served.ok(&["table", "restore", "b", "copy"]);
    let served = kill(served, &[]);
    assert_eq!(served.count("copy"), two);
    served.ok(&["table", "undelete", "t"]);
    let served = kill(served, &[]);
    assert_eq!((served.count("t"), served.count("copy")), (two.clone(), two.clone()));
    served.ok(&["table", "drop", "t", "--yes"]);
    served.ok(&["table", "drop", "copy", "--yes"]);
    served.ok(&["table", "backup", "delete", "b", "--yes"]);
    // The sweep at the start removes what is no longer kept, in the background.
    let served = kill(served, &["--keep-deleted", "0s"]);
    let swept = || served.json(&["table", "list", "--deleted"]) == json!({"tables": []});
    until("the sweep", swept).await;
    assert!(served.refuses(&["table", "undelete", "t"]).contains("no deleted table"));
    assert!(served.0.terminate().status.success());
    let files = std::fs::read_dir(dir.path().join("fragments")).unwrap();
    let mut verify = command(&["engine", "verify", &dir.path().display().to_string(), "--json"]);
    let output = verify.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sound"], &report["deleted_tables"]), (&json!(true), &json!(0)));
    assert_eq!(files.count(), report["fragments"].as_array().unwrap().len());
}
