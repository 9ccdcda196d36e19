//! Fault injection, which users enable to test how their programs retry.

use std::process::Output;

use serde_json::{Value, json};
use tonic::Code;

use crate::support::{INSTANCE, Server, command, make_table, ping, refused, write};

/// Runs `stele inject`.
fn inject(server: &Server, args: &[&str]) -> Output {
    let mut all = command(&["inject"]);
    all.args(args).env("STELE_HTTP", server.address("http")).output().unwrap()
}

fn listed(output: &Output) -> Value {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn calls_fail_with_the_codes_and_shares_of_the_rules() {
    let rules = ["--inject", "PingAndWarm:unavailable=20%,aborted=10%", "--inject-seed", "7"];
    let outcomes = async || {
        let server = Server::start(&[&["--ephemeral"][..], &rules].concat());
        let mut client = server.client().await;
        let mut codes = Vec::new();
        for _ in 0..200 {
            let answer = client.ping_and_warm(ping()).await;
            if let Err(status) = &answer {
                assert!(status.message().contains("injected fault"), "{status:?}");
                assert_eq!(status.metadata().get("stele-injected-fault").unwrap(), "1");
            }
            codes.push(answer.map_or_else(|status| status.code(), |_| Code::Ok));
        }
        (codes, server)
    };
    let (codes, server) = outcomes().await;
    let count = |code| codes.iter().filter(|found| **found == code).count();
    assert!((20..60).contains(&count(Code::Unavailable)), "{codes:?}");
    assert!((6..36).contains(&count(Code::Aborted)), "{codes:?}");
    assert_eq!(count(Code::Unavailable) + count(Code::Aborted) + count(Code::Ok), 200);
    let list = listed(&inject(&server, &["list", "--json"]));
    assert_eq!(list["seed"], 7);
    assert_eq!(
        (&list["rules"][0]["rule"], &list["rules"][0]["matched"]),
        (&json!(rules[1]), &json!(200))
    );
    assert_eq!(list["rules"][0]["failed"], count(Code::Unavailable) + count(Code::Aborted));
    assert!(server.get("/console/v1/overview").1.contains("Fault injection is on with 1 rule"));
    let failed = server.metric("stele_injected_faults_total{effect=\"error\"}");
    assert_eq!(failed, Some((count(Code::Unavailable) + count(Code::Aborted)) as f64));
    let printed = server.terminate().stderr;
    assert!(printed.contains("Faults are injected on purpose (1 rule)"), "{printed}");
    assert_eq!(outcomes().await.0, codes, "the same seed hits the same calls");
}

#[tokio::test]
async fn a_rule_of_a_table_hits_no_other() {
    let dir = tempfile::tempdir().unwrap();
    make_table(dir.path());
    let server = Server::with_data(dir.path(), &["--inject", "*@t:resource-exhausted=100%"]);
    let mut client = server.client().await;
    let hit = client.mutate_row(write("r", b"v".to_vec())).await.unwrap_err();
    assert_eq!(hit.code(), Code::ResourceExhausted);
    let mut other = write("r", b"v".to_vec());
    other.table_name = format!("{INSTANCE}/tables/other");
    let missed = client.mutate_row(other).await.unwrap_err();
    assert_ne!(missed.code(), Code::ResourceExhausted, "{missed:?}");
    client.ping_and_warm(ping()).await.unwrap();
    let clear = listed(&inject(&server, &["clear", "--json"]));
    assert_eq!(clear["rules"], json!([]));
    client.mutate_row(write("r", vec![7; 100_000])).await.unwrap();
    assert_eq!(crate::support::rows(&server).await, ["r"]);
}

#[tokio::test]
async fn rules_are_replaced_while_the_server_runs_if_that_was_switched_on() {
    let server = Server::start(&["--ephemeral", "--inject", ""]);
    let mut client = server.client().await;
    client.ping_and_warm(ping()).await.unwrap();
    let set = inject(&server, &["set", "PingAndWarm:internal=100%", "ReadRows:latency=1ms"]);
    assert!(String::from_utf8(set.stdout).unwrap().contains("PingAndWarm:internal=100%"));
    assert_eq!(client.ping_and_warm(ping()).await.unwrap_err().code(), Code::Internal);
    let wrong = inject(&server, &["set", "PingAndWarm:internal=200%"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("0% to 100%"));
    let unknown = inject(&server, &["set", "PingAndWorm:internal=1%"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no service has such a method"));
    let kept = client.ping_and_warm(ping()).await.unwrap_err();
    assert_eq!(kept.code(), Code::Internal, "a bad rule changes nothing");
    assert!(inject(&server, &["clear"]).status.success());
    client.ping_and_warm(ping()).await.unwrap();
}

#[test]
fn faults_cannot_be_injected_into_a_server_that_was_not_started_for_it() {
    let server = Server::start(&["--ephemeral"]);
    for args in [&["list"][..], &["clear"], &["set", "*:internal=1%"]] {
        let output = inject(&server, args);
        assert_eq!(output.status.code(), Some(2));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            printed.contains("fault injection is off") && printed.contains("--inject"),
            "{printed}"
        );
    }
    let printed =
        refused(&mut command(&["serve", "--ephemeral", "--inject", "ReadRows:unavailable=1"]));
    assert!(printed.contains("--inject") && printed.contains("0% to 100%"), "{printed}");
    let printed =
        refused(&mut command(&["serve", "--ephemeral", "--inject", "ReadRow:latency=1s"]));
    assert!(
        printed.contains("--inject") && printed.contains("did you mean Bigtable/ReadRows?"),
        "{printed}"
    );
}
