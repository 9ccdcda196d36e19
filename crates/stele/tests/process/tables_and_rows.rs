//! The commands for tables and rows as people and scripts use them, against a server in
//! the test's process.

use std::process::{Command, Output};

use serde_json::{Value, json};
use stele_bigtable::Api;
use stele_engine::Options;
use stele_engine::world::World;
use stele_tables::Tables;

use crate::support::{Commands, Hosted, command};

struct Served(Hosted);

impl Commands for Served {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("STELE_ENDPOINT", &self.0.address);
        command
    }

    /// Returns the output of a command that must succeed without warnings.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
        assert_eq!(error, "", "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Served {
    fn new() -> Served {
        Served(Hosted::new(async |dir| {
            let tables = Tables::open(dir, Options::default(), World::real()).unwrap();
            Api::new(tables).unwrap().routes()
        }))
    }

    /// Creates a server with a table of two families and three rows.
    fn with_rows() -> Served {
        let served = Served::new();
        served.ok(&["table", "create", "t", "--family", "f", "--family", "g:maxversions=2"]);
        served.ok(&["set", "t", "a1", "f:name=Ada@1000000", "f:name=old@1000", "g:n=1@2000000"]);
        served.ok(&["set", "t", "a2", "f:name=\\xff\\x00@3000000"]);
        served.ok(&["set", "t", "b\\x01", "g:=@0"]);
        served
    }

    /// Returns the one-line error of a command that must fail.
    fn fails(&self, args: &[&str]) -> String {
        failure(&self.run(args))
    }
}

fn failure(output: &Output) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("stele: ") && !message.contains('{'), "{message}");
    message
}

#[test]
fn tables_are_made_shown_changed_and_dropped() {
    let served = Served::new();
    assert_eq!(served.ok(&["table", "list"]), "");
    let made = ["table", "create", "users", "--family", "info", "--family", "log:maxage=30d"];
    assert_eq!(served.ok(&made), "created table users\n");
    served.ok(&["table", "create", "empty", "--split", "m", "--split", "\\xff"]);
    assert_eq!(served.ok(&["table", "list"]), "empty\nusers\n");
    assert_eq!(served.ok(&["table", "list", "--json"]), "{\"tables\":[\"empty\",\"users\"]}\n");
    assert_eq!(
        served.ok(&["table", "describe", "users"]),
        "projects/stele/instances/stele/tables/users\n\
         timestamps in millis\n \
         family  values  garbage    \n \
         info    bytes   never      \n \
         log     bytes   maxage=30d \n"
    );
    assert!(served.ok(&["table", "describe", "empty"]).contains("no families: add one with"));

    let add = ["table", "family", "add", "users", "photos", "--rule", "maxversions=1"];
    assert_eq!(served.ok(&add), "created family photos in table users\n");
    let rule = "maxage=7d && maxversions=1 || maxversions=100";
    assert_eq!(
        served.ok(&["table", "gc-rule", "users", "log", rule]),
        "updated GC rule of users:log to (maxage=7d && maxversions=1) || maxversions=100\n"
    );
    served.ok(&["table", "family", "set", "users", "info", "--rule", "maxage=36h"]);
    served.ok(&["table", "family", "drop", "users", "photos", "--yes"]);
    let described: Value =
        serde_json::from_str(&served.ok(&["table", "describe", "users", "--json"])).unwrap();
    let rules = "(maxage=7d && maxversions=1) || maxversions=100";
    assert_eq!(
        described,
        json!({
            "name": "projects/stele/instances/stele/tables/users",
            "granularity": "millis",
            "deletion_protection": false,
            "families": {
                "info": {"gc_rule": "maxage=36h", "values": "bytes"},
                "log": {"gc_rule": rules, "values": "bytes"},
            },
        })
    );
    assert_eq!(served.ok(&["table", "drop", "users", "--yes"]), "deleted table users\n");
    assert_eq!(served.ok(&["table", "list"]), "empty\n");
}

#[test]
fn rows_are_shown_with_their_cells_below() {
    let served = Served::with_rows();
    assert_eq!(
        served.ok(&["read", "t"]),
        "a1\n  \
         f:name  1970-01-01T00:00:01.000000Z  Ada\n  \
         f:name  1970-01-01T00:00:00.001000Z  old\n  \
         g:n     1970-01-01T00:00:02.000000Z  1\n\
         a2\n  \
         f:name  1970-01-01T00:00:03.000000Z  \\xff\\x00\n\
         b\\x01\n  \
         g:  1970-01-01T00:00:00.000000Z\n"
    );
    assert_eq!(
        served.ok(&["read", "t", "--prefix", "a2", "--hex"]),
        "6132\n  f:6e616d65  1970-01-01T00:00:03.000000Z  ff00\n"
    );
    assert_eq!(
        served.ok(&["read", "t", "--json", "--start", "a2"]),
        "{\"cells\":[{\"family\":\"f\",\"qualifier\":\"name\",\"timestamp_micros\":3000000,\
         \"value_base64\":\"/wA=\"}],\"row\":\"a2\"}\n\
         {\"cells\":[{\"family\":\"g\",\"qualifier\":\"\",\"timestamp_micros\":0,\
         \"value\":\"\"}],\"row_base64\":\"YgE=\"}\n"
    );
}

#[test]
fn reads_are_narrowed_down_by_rows_columns_versions_and_time() {
    let served = Served::with_rows();
    let keys = |args: &[&str]| {
        let text = served.ok(&[&["read", "t"], args].concat());
        let keys = text.lines().filter(|line| !line.starts_with(' '));
        keys.map(str::to_string).collect::<Vec<_>>()
    };
    let cells = |args: &[&str]| {
        let text = served.ok(&[&["read", "t"], args].concat());
        text.lines().filter(|line| line.starts_with(' ')).count()
    };
    assert_eq!(keys(&["--prefix", "a"]), ["a1", "a2"]);
    assert_eq!(keys(&["--start", "a2", "--end", "b"]), ["a2"]);
    assert_eq!(keys(&["--regex", "[a-z]2"]), ["a2"]);
    assert_eq!(keys(&["--reversed", "--limit", "2"]), ["b\\x01", "a2"]);
    assert_eq!(keys(&["--columns", "g:n,g:"]), ["a1", "b\\x01"]);
    assert_eq!(keys(&["--since", "2500000"]), ["a2"]);
    assert_eq!(keys(&["--until", "1970-01-01T00:00:01Z"]), ["a1", "b\\x01"]);
    assert_eq!(cells(&["--prefix", "a1"]), 3);
    assert_eq!(cells(&["--prefix", "a1", "--versions", "1"]), 2);
    assert_eq!(cells(&["--prefix", "a1", "--columns", "f"]), 2);
    assert!(!served.ok(&["read", "t", "--keys-only"]).contains("Ada"));
    assert_eq!(served.ok(&["count", "t"]), "3\n");
    assert_eq!(served.ok(&["count", "t", "--prefix", "a", "--json"]), "{\"rows\":2}\n");
}

#[test]
fn one_row_is_looked_up_set_and_deleted() {
    let served = Served::with_rows();
    assert_eq!(
        served.ok(&["lookup", "t", "a1", "--versions", "1", "--columns", "f:name"]),
        "a1\n  f:name  1970-01-01T00:00:01.000000Z  Ada\n"
    );
    assert_eq!(served.ok(&["set", "t", "x", "f:a=1", "f:b=2"]), "set 2 cells in row x\n");
    assert_eq!(served.ok(&["delete", "t", "x", "f:a"]), "deleted cells of row x\n");
    assert!(served.ok(&["lookup", "t", "x"]).contains("f:b"));
    assert_eq!(served.ok(&["delete", "t", "x"]), "deleted row x\n");
    let absent = served.run(&["lookup", "t", "x"]);
    assert_eq!(absent.status.code(), Some(1));
    let message = String::from_utf8(absent.stderr).unwrap();
    assert_eq!(message, "stele: row x not found in table t\n");
    let filtered = served.run(&["lookup", "t", "a1", "--columns", "f:no"]);
    assert_eq!(filtered.status.code(), Some(1));
    let message = String::from_utf8(filtered.stderr).unwrap();
    assert_eq!(message, "stele: row a1 not found in table t, or no cell matches\n");
    let absent = served.run(&["lookup", "t", "x", "--json"]);
    assert_eq!((absent.status.code(), &*absent.stdout), (Some(1), &b"null\n"[..]));
}

#[test]
fn many_rows_are_deleted_only_when_it_is_confirmed() {
    let served = Served::with_rows();
    let message = served.fails(&["delete", "t", "--prefix", "a"]);
    assert!(
        message.contains("refusing to delete all rows of table t that start with a: "),
        "{message}"
    );
    assert!(message.contains("pass --yes"), "{message}");
    for args in [
        &["delete", "t", "--all"][..],
        &["table", "drop", "t"],
        &["table", "family", "drop", "t", "f"],
    ] {
        assert!(served.fails(args).contains("pass --yes"));
    }
    assert_eq!(served.ok(&["count", "t"]), "3\n");
    let deleted = served.ok(&["delete", "t", "--prefix", "a", "--yes"]);
    assert_eq!(deleted, "deleted all rows of table t that start with a\n");
    assert_eq!(served.ok(&["count", "t"]), "1\n");
    served.ok(&["delete", "t", "--all", "--yes"]);
    assert_eq!(served.ok(&["count", "t"]), "0\n");
}

#[test]
fn errors_say_what_happened_and_what_to_do() {
    let served = Served::with_rows();
    for (args, says) in [
        (&["read", "nope"][..], "tables/nope; `stele table list` shows"),
        (&["set", "t", "k", "h:q=v"], "family not found"),
        (&["table", "create", "t"], "already exists"),
        (&["table", "describe", "nope"], "`stele table list` shows"),
        (&["read", "t", "--regex", "("], "row_key_regex_filter"),
        (&["table", "create", "u", "--family", "f", "--family", "f"], "given twice"),
        (&["delete", "t", "--prefix", "", "--yes"], "--all"),
        (&["read", "t", "--creds", "no-such.json"], "no-such.json"),
        (&["read", "t", "--server", "host:port"], "invalid address"),
        (&["read", "t", "--tls-ca", "no-such.pem"], "no-such.pem"),
    ] {
        let message = served.fails(args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
}

#[test]
fn a_server_that_is_not_there_comes_with_advice() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let output = command(&["read", "t"]).env("BIGTABLE_EMULATOR_HOST", &address).output().unwrap();
    let message = failure(&output);
    assert!(message.contains(&format!("cannot reach {address}")), "{message}");
    assert!(message.contains("start a server with `stele serve`"), "{message}");
    assert!(message.contains("--server"), "{message}");
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    for args in [
        &["read"][..],
        &["read", "t", "--prefix", "a", "--start", "b"],
        &["read", "t", "--versions", "0"],
        &["read", "t", "--since", "soon"],
        &["read", "t", "--columns", ":q"],
        &["lookup", "t", "\\q"],
        &["set", "t", "k"],
        &["set", "t", "k", "f:q"],
        &["delete", "t"],
        &["delete", "t", "k", "--prefix", "p"],
        &["table", "gc-rule", "t", "f", "maxage=7"],
        &["table", "create", "t", "--family", "f:nonsense"],
    ] {
        let output = command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: "), "{args:?}");
    }
}

#[test]
fn every_command_explains_itself_with_examples() {
    for args in [
        &["read"][..],
        &["lookup"],
        &["set"],
        &["delete"],
        &["count"],
        &["table", "create"],
        &["table", "list"],
        &["table", "describe"],
        &["table", "drop"],
        &["table", "gc-rule"],
        &["table", "tablets"],
        &["table", "split"],
        &["table", "join"],
        &["table", "compact"],
        &["table", "load"],
        &["table", "unload"],
        &["table", "verify"],
        &["table", "dump-config"],
        &["table", "backup", "create"],
        &["table", "backup", "list"],
        &["table", "backup", "show"],
        &["table", "backup", "delete"],
        &["table", "restore"],
        &["table", "undelete"],
        &["table", "family", "add"],
        &["table", "family", "set"],
        &["table", "family", "drop"],
    ] {
        let output = command(&[args, &["--help"]].concat()).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(help.contains("Example") && help.contains(&args.join(" ")), "{args:?}: {help}");
        assert!(help.contains("--server"), "{args:?}");
    }
}
