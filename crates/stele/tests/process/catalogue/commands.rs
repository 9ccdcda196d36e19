//! `stele catalogue` as people and scripts use it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::server;
use crate::support::{Commands, Server, command};

struct Served(Server);

impl Commands for Served {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&[&["catalogue"], args].concat());
        command.env("STELE_ENDPOINT", self.0.address("grpc"));
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        self.ends(0, args)
    }
}

impl Served {
    fn new() -> Served {
        Served(server::start(&["--ephemeral"]))
    }

    /// Returns the output of a command that must exit with this code.
    fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert_eq!(error.is_empty(), code < 2, "{args:?}: {error}");
        if code < 2 { String::from_utf8(output.stdout).unwrap() } else { error }
    }

    fn json(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.ok(args);
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

const FID: &str = "i|1:1";
const PRINTED: &str = "6900000000000001:1";

#[test]
fn a_catalogue_is_made_filled_read_and_dropped() {
    let served = Served::new();
    assert_eq!(served.ok(&["create", FID]), format!("catalogue {PRINTED} created\n"));
    assert_eq!(served.ends(1, &["create", FID]), format!("catalogue {PRINTED} already exists\n"));
    assert_eq!(
        served.ok(&["put", FID, "name=Ada", "born=1815", "\\xff=\\x00"]),
        "3 records stored\n"
    );
    assert_eq!(served.ok(&["get", FID, "name"]), "name = Ada\n");
    assert_eq!(served.ends(1, &["get", FID, "name", "no"]), "name = Ada\nno not found\n");
    assert_eq!(
        served.ends(1, &["put", FID, "name=Eve", "new=1", "--insert-only"]),
        "name already exists\n1 record stored\n"
    );
    assert_eq!(
        served.ends(1, &["put", FID, "name=Eve", "--expect", "Bob"]),
        "name does not have the expected value\n0 records stored\n"
    );
    assert_eq!(served.ok(&["next", FID]), "born = 1815\nname = Ada\nnew = 1\n\\xff = \\x00\n");
    assert_eq!(served.ok(&["next", FID, "c", "--count", "1", "--keys-only"]), "name\n");
    assert_eq!(served.ok(&["next", FID, "name", "--reverse", "--exclude-start"]), "born = 1815\n");
    assert_eq!(served.ok(&["next", FID, "--prefix", "n", "--end", "new"]), "name = Ada\n");
    assert_eq!(
        served.json(&["next", FID, "--json"])[3],
        json!({"key_base64": "/w==", "value_base64": "AA=="})
    );
    assert_eq!(served.ends(1, &["del", FID, "new", "no"]), "no not found\n1 record deleted\n");
    assert!(served.ends(2, &["del", FID, "--prefix", "n"]).contains("--yes"));
    assert_eq!(served.ok(&["del", FID, "--prefix", "n", "--yes"]), "1 record deleted\n");
    let stat = served.json(&["stat", FID, "--json"]);
    assert_eq!((&stat[0]["records"], &stat[0]["bytes"]), (&json!(2), &json!(10)));
    assert!(served.ok(&["stat"]).contains(PRINTED));
    assert!(served.ends(2, &["drop", FID]).contains("--yes"));
    assert_eq!(
        served.ok(&["drop", FID, "--yes", "--wait"]),
        format!("catalogue {PRINTED} dropped\n")
    );
    assert!(served.ends(1, &["create", FID]).contains("--reuse"));
    assert_eq!(
        served.json(&["create", FID, "--reuse", "--json"]),
        [json!({"fid": PRINTED, "code": "OK"})]
    );
    let listed = served.json(&["list", "--json"]);
    assert_eq!((listed.len(), &listed[3]["fid"]), (4, &json!(PRINTED)));
}

#[test]
fn what_is_exported_is_imported_again() {
    let served = Served::new();
    served.ok(&["put", FID, "a=1", "b=\\xfe\\n", "=", "--create-catalogue"]);
    let exported = served.ok(&["export", FID]);
    assert_eq!(exported.lines().count(), 3);
    let mut import = served
        .command(&["import", "i|1:2", "--create-catalogue", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(exported.as_bytes()).unwrap();
    let output = import.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\"count\":3}\n");
    assert_eq!(served.ok(&["export", "i|1:2"]), exported);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.jsonl");
    std::fs::write(&file, "{\"key\":\"x\",\"value\":\"\"}\n{\"key\":1}\n").unwrap();
    let message = served.ends(2, &["import", "i|1:2", file.to_str().unwrap()]);
    assert!(message.contains("line 2") && message.contains("0 records before it"), "{message}");
}

#[test]
fn mistakes_come_with_what_to_do() {
    let served = Served::new();
    assert!(served.ends(2, &["get", FID, "k"]).contains("`stele catalogue list` shows"));
    assert!(served.ends(2, &["create", "1:1"]).contains("type 0x00"));
    assert!(served.ends(2, &["create", "x"]).contains("invalid fid"));
    assert!(served.ends(2, &["put", FID, "k"]).contains("KEY=VALUE"));
    assert!(served.ends(2, &["create", "i|0:1"]).contains("belongs to the service"));
    assert!(served.ends(2, &["del", FID]).contains("nothing to delete"));
    let mut nobody = served.command(&["list"]);
    let output = nobody.env("STELE_ENDPOINT", "127.0.0.1:1").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot reach 127.0.0.1:1") && message.contains("stele serve"),
        "{message}"
    );
}
