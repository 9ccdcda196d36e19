//! Import and export of files, and the commands for instances, app profiles, backups and
//! views, against a server in the test's process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use stele_bigtable::Api;
use stele_engine::Options;
use stele_engine::world::World;
use stele_tables::Tables;

use crate::support::{Commands, Hosted, command};

struct Served {
    hosted: Hosted,
    files: tempfile::TempDir,
}

impl Commands for Served {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("STELE_ENDPOINT", &self.hosted.address).current_dir(self.files.path());
        command
    }
}

impl Served {
    /// Creates a server with a table `t` of the families `p` and `s`.
    fn new() -> Served {
        let hosted = Hosted::new(async |dir| {
            let tables = Tables::open(dir, Options::default(), World::real()).unwrap();
            Api::new(tables).unwrap().routes()
        });
        let served = Served { hosted, files: tempfile::tempdir().unwrap() };
        served.ok(&["table", "create", "t", "--family", "p", "--family", "s"]);
        served
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.file(name), text).unwrap();
    }

    /// Returns everything in a table, as `stele export` writes it, a character for each byte.
    fn cells(&self, table: &str) -> String {
        let exported = self.run(&["export", table, "-", "--format", "csv"]);
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        exported.stdout.into_iter().map(char::from).collect()
    }
}

/// Returns the lines of a file of JSON.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn fields_become_columns_as_they_are_mapped_and_a_second_import_changes_nothing() {
    let served = Served::new();
    served.write("u.csv", "id,city,n\na,\"Köln, Deutz\",7\nb,,-1\n");
    let import = ["import", "t", "u.csv", "--map", "key=id,p:city=city", "--map", "s:n=n@int64"];
    assert_eq!(served.ok(&import), "imported 2 records into table t\n");
    let read = served.ok(&["read", "t", "--json"]);
    assert!(read.contains("Köln, Deutz") && !read.contains("\"b\",\"p\""), "{read}");
    let before = served.cells("t");
    assert_eq!(before.lines().count(), 4, "{before}");
    served.ok(&import);
    assert_eq!(served.cells("t"), before);
    assert!(!served.file("u.csv.import").exists() && !served.file("u.csv.rejected").exists());

    served.write("u.jsonl", "{\"key\":\"c\",\"p:city\":\"Lyon\",\"s:n\":5}\n\n{\"key\":\"d\",\"p:city\":null,\"s:n\":{\"x\":[1]}}\n");
    let at = ["import", "t", "u.jsonl", "--at", "2026-01-31T00:00:00Z"];
    assert_eq!(served.ok(&at), "imported 2 records into table t\n");
    let cells = served.cells("t");
    assert!(cells.contains("c,p,city,1769817600000000,Lyon"), "{cells}");
    assert!(cells.contains("d,s,n,1769817600000000,\"{\"\"x\"\":[1]}\""), "{cells}");
}

#[test]
fn what_is_exported_is_imported_bit_by_bit() {
    let served = Served::new();
    served.ok(&[
        "set",
        "t",
        "a\\xff\\x00",
        "p:q\\x0a=\\x00\\xfe@1000",
        "p:=@0",
        "s:x=\"y\",z@2000",
    ]);
    served.ok(&["set", "t", "b", "p:v=old@1000", "p:v=new@2000"]);
    let before = served.cells("t");
    for file in ["all.csv", "all.jsonl"] {
        let exported = served.run(&["export", "t", file]);
        assert_eq!(
            String::from_utf8(exported.stderr).unwrap(),
            "exported 2 rows with 5 cells of table t\n"
        );
        served.ok(&["table", "create", file, "--family", "p", "--family", "s"]);
        assert_eq!(
            served.ok(&["import", file, file]),
            format!("imported 5 records into table {file}\n")
        );
        assert_eq!(served.cells(file), before, "{file}");
    }
    assert_eq!(
        served
            .ok(&["export", "t", "-", "--format", "jsonl", "--prefix", "b", "--versions", "1"])
            .lines()
            .count(),
        1
    );
}

#[test]
fn records_that_cannot_be_rows_are_kept_with_the_reasons() {
    let served = Served::new();
    served.write("bad.csv", "key,s:n,p:x\na,1,\n,2,v\nb,many,v\nc,3\nd,4,v\n");
    let output = served.run(&["import", "t", "bad.csv", "--map", "key=key,s:n=s:n@int64,p:x=p:x"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("imported 2 records into table t; 3 records rejected: see bad.csv.rejected"),
        "{text}"
    );
    let rejected = lines(&served.file("bad.csv.rejected"));
    let reasons: Vec<_> = rejected
        .iter()
        .map(|line| (line["record"].as_u64().unwrap(), line["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        reasons,
        [
            (2, "key: it is empty"),
            (3, "s:n: \"many\" is not a 64-bit integer"),
            (4, "2 fields instead of 3"),
        ]
    );
    assert_eq!(rejected[1]["fields"]["p:x"], "v");
    for (args, text) in [
        (&["import", "t", "none.csv"][..], "none.csv"),
        (&["import", "t", "bad.csv", "--map", "key=x,p:y=z"], "there is no field \"x\""),
        (&["import", "t", "bad.csv", "--map", "key=key,none:y=s:n"], "has no family none"),
        (&["import", "absent", "bad.csv"], "absent"),
        (&["import", "t", "data.parquet"], "Parquet"),
        (&["import", "t", "data.bin"], "--format"),
    ] {
        let error = served.fails(2, args);
        assert!(error.contains(text), "{args:?}: {error}");
    }
}

#[test]
fn an_import_that_is_killed_again_and_again_gives_the_same_table() {
    let served = Served::new();
    let rows = if std::env::var_os("STELE_LONG").is_some() { 2_000_000 } else { 60_000 };
    let mut text = String::from("key,p:v\n");
    for row in 0..rows {
        text += &format!("row-{:07}-{row},{}\n", row * 7919 % 1_000_003, "v".repeat(200));
        if row % 10_007 == 5 {
            text += "only-a-key\n";
        }
    }
    served.write("large.csv", &text);
    served.ok(&["table", "create", "whole", "--family", "p"]);
    served.ok(&["table", "create", "parts", "--family", "p"]);
    let at = ["--at", "2026-01-01"];
    let whole = served.run(
        &[&["import", "whole", "large.csv", "--rejected", "whole.rejected"][..], &at].concat(),
    );
    assert_eq!(whole.status.code(), Some(1), "some records are rejected");
    let args =
        [&["import", "parts", "large.csv", "--rejected", "parts.rejected"][..], &at].concat();
    let progress = || fs::read(served.file("large.csv.import")).ok();
    let mut kills = 0;
    loop {
        let before = progress();
        let mut import = served.command(&args).spawn().unwrap();
        // Killed as soon as it has come further, until it ends by itself.
        let ended = loop {
            if let Some(status) = import.try_wait().unwrap() {
                break Some(status);
            }
            if kills < 6 && progress().is_some_and(|now| Some(now) != before) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        match ended {
            Some(status) => {
                assert_eq!(status.code(), Some(1));
                break;
            }
            None => {
                import.kill().unwrap();
                import.wait().unwrap();
                kills += 1;
            }
        }
    }
    assert_eq!(served.cells("parts"), served.cells("whole"));
    assert_eq!(lines(&served.file("parts.rejected")), lines(&served.file("whole.rejected")));
    assert!(!served.file("large.csv.import").exists());
}

#[test]
fn an_interrupted_import_continues_only_with_the_same_options() {
    let served = Served::new();
    served.write("a.csv", "key,p:v\na,1\n");
    served.write("a.csv.import", "{}");
    let error = served.fails(2, &["import", "t", "a.csv"]);
    assert!(error.contains("--restart"), "{error}");
    assert_eq!(
        served.ok(&["import", "t", "a.csv", "--restart"]),
        "imported 1 record into table t\n"
    );
}

#[test]
fn the_demo_has_data_to_look_at() {
    let served = Served::new();
    let told = served.ok(&["demo"]);
    assert_eq!(told.lines().count(), 3, "{told}");
    served.ok(&["demo"]);
    assert_eq!(served.ok(&["count", "demo-users"]).trim(), "1000");
    assert!(served.ok(&["read", "demo-graph", "--prefix", "user-0001#"]).contains("follows"));
}

#[test]
fn instances_profiles_backups_and_views_are_managed() {
    let served = Served::new();
    let made =
        ["instance", "create", "production", "--cluster", "production-a", "--label", "env=prod"];
    assert_eq!(served.ok(&made), "created instance production with cluster production-a\n");
    let error = served.fails(2, &made);
    assert!(error.contains("already exists"), "{error}");
    assert!(served.ok(&["instance", "list"]).contains("env=prod"));
    served.ok(&["instance", "update", "production", "--display-name", "The shop"]);
    assert!(served.ok(&["instance", "show", "production", "--json"]).contains("The shop"));
    let within = |args: &[&str]| served.ok(&[args, &["--instance", "production"]].concat());
    within(&["instance", "cluster", "create", "production-b", "--zone", "b"]);
    within(&["instance", "cluster", "update", "production-b", "--nodes", "3"]);
    let listed = within(&["instance", "cluster", "list", "--json"]);
    assert!(listed.lines().count() == 2 && listed.contains("\"serve_nodes\":3"), "{listed}");
    within(&["instance", "cluster", "delete", "production-b", "--yes"]);
    within(&["profile", "create", "pay", "--cluster", "production-a", "--transactions"]);
    assert!(within(&["profile", "list"]).contains("production-a"));
    within(&["profile", "delete", "pay", "--yes"]);
    assert_eq!(within(&["profile", "list", "--json"]).lines().count(), 1);
    served.ok(&["instance", "delete", "production", "--yes"]);

    served.ok(&["set", "t", "de:1", "p:name=Ada"]);
    served.ok(&["backup", "create", "t", "monday", "--expire", "2d"]);
    served.ok(&["backup", "copy", "monday", "tuesday", "--expire", "9d"]);
    served.ok(&["backup", "expire", "monday", "5d"]);
    let listed = served.ok(&["backup", "list", "--order", "name", "--json"]);
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert!(first["name"].as_str().unwrap().ends_with("/backups/monday"), "{listed}");
    served.ok(&["backup", "restore", "tuesday", "again"]);
    assert_eq!(served.cells("again"), served.cells("t"));
    served.ok(&["backup", "delete", "monday", "--yes"]);
    assert_eq!(served.ok(&["backup", "list", "--json"]).lines().count(), 1);

    served.ok(&[
        "view",
        "create",
        "t",
        "germany",
        "--prefix",
        "de:",
        "--column",
        "p:name",
        "--column-prefix",
        "s:x",
    ]);
    let listed = served.ok(&["view", "list", "t"]);
    assert!(listed.contains("de:*") && listed.contains("p:name s:x*"), "{listed}");
    served.ok(&["view", "delete", "t", "germany", "--yes"]);
    for args in [
        &["instance", "delete", "x"][..],
        &["backup", "delete", "tuesday"],
        &["view", "delete", "t", "v"],
        &["profile", "delete", "p"],
    ] {
        let error = served.fails(2, args);
        assert!(error.contains("--yes"), "{error}");
    }
}
