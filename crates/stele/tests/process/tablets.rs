//! The commands for tablets as operators use them, against a server process.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Commands, Server, command, make_table, refused, write};

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
    /// Starts a server with a table `t` of a few rows.
    async fn new(dir: &std::path::Path) -> Served {
        make_table(dir);
        let server = Server::with_data(dir, &[]);
        let mut client = server.client().await;
        for row in ["a", "b", "c\u{1}"] {
            client.mutate_row(write(row, vec![b'v'; 100])).await.unwrap();
        }
        Served(server)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Returns the error of a command that must fail.
    fn refuses(&self, args: &[&str]) -> String {
        refused(&mut self.command(args))
    }
}

#[tokio::test]
async fn tablets_are_shown_split_joined_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    assert_eq!(served.ok(&["table", "split", "t", "b"]), "split table t at row b\n");
    assert_eq!(served.ok(&["table", "split", "t", "b"]), "table t is already split at row b\n");
    assert_eq!(
        served.json(&["table", "split", "t", "c\\x01"]),
        json!({
            "table": "projects/p/instances/i/tables/t",
            "row_base64": "YwE=",
            "created": true,
        })
    );
    assert_eq!(served.ok(&["table", "compact", "t"]), "compacted table t: 3 tablets\n");
    let shown = served.ok(&["table", "tablets", "t"]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 5, "{shown}");
    let header: Vec<_> = lines[0].split_whitespace().collect();
    let names = ["tablet", "state", "first", "row", "end", "row", "load", "size", "files", "runs"];
    assert_eq!(header, names);
    let middle: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(middle[1..5], ["active", "b", "c\\x01", "1"], "{shown}");
    assert!(lines[4].starts_with("3 tablets, "), "{shown}");
    let listed = served.json(&["table", "tablets", "t"]);
    let tablets = listed["tablets"].as_array().unwrap();
    assert_eq!(tablets.len(), 3);
    assert_eq!((&tablets[0]["start_row"], &tablets[0]["end_row"]), (&json!(""), &json!("b")));
    assert_eq!(tablets[2]["start_row_base64"], "YwE=");
    assert_eq!((&tablets[2]["end_row"], &tablets[2]["state"]), (&Value::Null, &json!("active")));
    assert_eq!((&tablets[2]["files"], &tablets[2]["groups"][0]["runs"]), (&json!(1), &json!(1)));
    let joined = served.ok(&["table", "join", "t", "c\\x01"]);
    assert_eq!(joined, "joined the tablets of table t at row c\\x01\n");
    let (page, metrics) = (served.0.get("/console/v1/tables").1, served.0.get("/metrics").1);
    assert!(page.contains("\"projects/p/instances/i/tables/t\""), "{page}");
    let page: Value =
        serde_json::from_str(&served.0.get("/console/v1/table?table=p/i/t").1).unwrap();
    assert_eq!(page["tablets_total"], json!(2), "{page}");
    assert!(served.0.get("/console/v1/table?table=p/i/no").0.contains("404"));
    for line in [
        "stele_tablets{table=\"projects/p/instances/i/tables/t\"} 2",
        "stele_tablet_splits_total 2",
        "stele_tablet_joins_total 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_table_in_use_is_verified_and_damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    served.ok(&["table", "split", "t", "b"]);
    served.ok(&["table", "compact", "t"]);
    let sound = served.ok(&["table", "verify", "t"]);
    assert!(sound.starts_with("2 tablets, ") && sound.ends_with("3 cells\nsound\n"), "{sound}");
    let report = served.json(&["table", "verify", "t"]);
    assert_eq!((&report["sound"], &report["rows"]), (&json!(true), &json!(3)));
    let config = served.ok(&["table", "dump-config", "t", "--json"]);
    let config: Vec<Value> =
        config.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = config.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["store", "table", "tablet", "tablet"]);
    let name = config[2]["chains"][0]["files"][0]["name"].as_str().unwrap();
    let path = dir.path().join("fragments").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = served.run(&["table", "verify", "t"]);
    assert_eq!(output.status.code(), Some(1));
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains(&format!("DAMAGE: {name}, byte 0: the checksum")), "{found}");
    assert!(found.ends_with("damaged in 1 place\n"), "{found}");
}

#[tokio::test]
async fn an_unloaded_tablet_is_not_served_until_it_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    served.ok(&["table", "split", "t", "b"]);
    let unload = ["table", "unload", "t", "--start", "b"];
    assert_eq!(served.ok(&unload), "unloaded 1 tablet of table t\n");
    assert!(served.ok(&unload).contains("already unloaded"));
    let shown = served.ok(&["table", "tablets", "t"]);
    assert!(shown.lines().nth(2).is_some_and(|line| line.contains("unloaded")), "{shown}");
    assert!(served.ok(&["table", "dump-config", "t"]).contains(", unloaded: from row \"b\""));
    assert!(served.refuses(&["lookup", "t", "b"]).contains("`stele table load`"));
    assert!(served.ok(&["lookup", "t", "a"]).starts_with('a'));
    let loaded = served.json(&["table", "load", "t"]);
    assert_eq!(loaded["loaded"], 1);
    assert!(served.ok(&["lookup", "t", "b"]).starts_with('b'));
    let empty = ["table", "load", "t", "--start", "b", "--end", "a"];
    assert!(served.refuses(&empty).contains("empty"));
}

#[tokio::test]
async fn the_config_of_a_server_is_that_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    served.ok(&["table", "split", "t", "b"]);
    served.ok(&["table", "compact", "t"]);
    for form in [&[][..], &["--json"]] {
        let online = served.ok(&[&["table", "dump-config", "t"], form].concat());
        let directory = dir.path().to_str().unwrap();
        let offline = served.ok(&[&["engine", "dump-config", directory], form].concat());
        for line in online.lines() {
            assert!(offline.lines().any(|found| found == line), "{line}: {offline}");
        }
    }
    let shown = served.ok(&["table", "dump-config", "t"]);
    assert!(shown.contains("from the first row to before \"b\""), "{shown}");
    assert!(shown.contains("group default: families f; "), "{shown}");
    let nothing = tempfile::tempdir().unwrap();
    let dump = ["engine", "dump-config", nothing.path().to_str().unwrap()];
    assert!(served.refuses(&dump).contains("no store found"));
}

#[tokio::test]
async fn errors_say_what_happened_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path()).await;
    for (args, says) in [
        (&["table", "tablets", "nope"][..], "not found; `stele table list` shows"),
        (&["table", "verify", "nope"], "not found; `stele table list` shows"),
        (&["table", "join", "t", "x"], "no two tablets meet at row \"x\"; `stele table tablets`"),
        (&["table", "split", "t", ""], "before its first row; `stele table tablets`"),
        (&["table", "tablets", "t", "--server", "google"], "pass the address of a `stele serve`"),
        (&["table", "tablets", "projects/stele-system/instances/names/tables/x"], "reserved"),
    ] {
        let message = served.refuses(args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let catalogue = served.ok(&["table", "tablets", "catalogue/meta"]);
    assert!(catalogue.contains("1 tablet, "), "{catalogue}");
}
