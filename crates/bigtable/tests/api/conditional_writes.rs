//! ReadModifyWriteRow and CheckAndMutateRow are atomic.

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::read_modify_write_rule::Rule;
use tonic::Code;

use crate::data_calls::*;
use crate::server::Server;

fn rule(qualifier: &str, rule: Rule) -> v2::ReadModifyWriteRule {
    v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: qualifier.as_bytes().to_vec().into(),
        rule: Some(rule),
    }
}

fn increment(qualifier: &str, amount: i64) -> v2::ReadModifyWriteRule {
    rule(qualifier, Rule::IncrementAmount(amount))
}

fn append(qualifier: &str, value: &str) -> v2::ReadModifyWriteRule {
    rule(qualifier, Rule::AppendValue(value.as_bytes().to_vec().into()))
}

fn modify(rules: Vec<v2::ReadModifyWriteRule>) -> v2::ReadModifyWriteRowRequest {
    v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        rules,
        ..Default::default()
    }
}

async fn modified(client: &mut Client, rules: Vec<v2::ReadModifyWriteRule>) -> Vec<Vec<u8>> {
    let response = client.read_modify_write_row(modify(rules)).await.unwrap().into_inner();
    let families = response.row.unwrap().families;
    let columns = families.into_iter().flat_map(|family| family.columns);
    columns.map(|column| column.cells[0].value.to_vec()).collect()
}

#[tokio::test]
async fn rules_see_what_earlier_rules_did() {
    let server = Server::with_table();
    let mut client = server.client();
    let values = modified(
        &mut client,
        vec![
            increment("n", 5),
            append("s", "ab"),
            increment("n", -7),
            append("s", "c"),
            append("empty", ""),
        ],
    )
    .await;
    assert_eq!(values, [b"".to_vec(), (-2i64).to_be_bytes().to_vec(), b"abc".to_vec()]);
    let values =
        modified(&mut client, vec![increment("n", i64::MIN + 2), increment("n", -1)]).await;
    assert_eq!(values, [(i64::MAX).to_be_bytes().to_vec()], "overflow wraps");
}

#[tokio::test]
async fn an_increment_needs_eight_bytes_and_changes_nothing_otherwise() {
    let server = Server::with_table();
    let mut client = server.client();
    for bytes in ["", "seven b", "nine byte"] {
        write(&mut client, "r", vec![set("f", "n", 1000, bytes)]).await;
        let rules = vec![append("s", "x"), increment("n", 1)];
        let status = client.read_modify_write_row(modify(rules)).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let text = "The increment operation can only be performed on 64-bit values";
        assert!(status.message().ends_with(text), "{}", status.message());
        assert_eq!(read_all(&mut client).await["r"], [format!("f:n@1000={bytes}")]);
    }
}

#[tokio::test]
async fn a_cell_from_the_future_keeps_its_timestamp() {
    let server = Server::with_table();
    let mut client = server.client();
    let future = 4_000_000_000_000_000;
    write(&mut client, "r", vec![set("f", "s", future, "a"), set("f", "s", 1000, "old")]).await;
    modified(&mut client, vec![append("s", "b")]).await;
    assert_eq!(
        read_all(&mut client).await["r"],
        [format!("f:s@{future}=ab"), "f:s@1000=old".into()]
    );
}

#[tokio::test]
async fn bad_rules_are_refused() {
    let server = Server::with_table();
    let mut client = server.client();
    let unknown = v2::ReadModifyWriteRule { family_name: "h".into(), ..append("s", "x") };
    let aggregate = v2::ReadModifyWriteRule { family_name: "sum".into(), ..increment("s", 1) };
    let none = v2::ReadModifyWriteRule { rule: None, ..append("s", "x") };
    for (rules, code) in [
        (vec![], Code::InvalidArgument),
        (vec![unknown], Code::NotFound),
        (vec![aggregate], Code::InvalidArgument),
        (vec![none], Code::InvalidArgument),
    ] {
        let status = client.read_modify_write_row(modify(rules)).await.unwrap_err();
        assert_eq!(status.code(), code, "{}", status.message());
    }
    let empty =
        v2::ReadModifyWriteRowRequest { row_key: "".into(), ..modify(vec![append("s", "x")]) };
    let status = client.read_modify_write_row(empty).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_among_many_clients() {
    let server = Server::with_table();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let mut client = server.client();
            tokio::spawn(async move {
                for _ in 0..50 {
                    modified(&mut client, vec![increment("n", 1)]).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let values = modified(&mut server.client(), vec![increment("n", 0)]).await;
    assert_eq!(values, [800i64.to_be_bytes().to_vec()]);
}

fn check(
    filter: Option<v2::RowFilter>,
    yes: Vec<v2::Mutation>,
    no: Vec<v2::Mutation>,
) -> v2::CheckAndMutateRowRequest {
    v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        predicate_filter: filter,
        true_mutations: yes,
        false_mutations: no,
        ..Default::default()
    }
}

async fn matched(client: &mut Client, request: v2::CheckAndMutateRowRequest) -> bool {
    client.check_and_mutate_row(request).await.unwrap().into_inner().predicate_matched
}

#[tokio::test]
async fn the_row_chooses_the_mutations() {
    let server = Server::with_table();
    let mut client = server.client();
    let request =
        || check(None, vec![set("f", "q", 2000, "old")], vec![set("f", "q", 1000, "new")]);
    assert!(!matched(&mut client, request()).await);
    assert_eq!(read_all(&mut client).await["r"], ["f:q@1000=new"]);
    assert!(matched(&mut client, request()).await);
    assert_eq!(read_all(&mut client).await["r"], ["f:q@2000=old", "f:q@1000=new"]);
    let nothing_to_do = check(None, vec![], vec![set("f", "q", 3000, "x")]);
    assert!(matched(&mut client, nothing_to_do).await);
    assert_eq!(read_all(&mut client).await["r"].len(), 2);
}

#[tokio::test]
async fn a_bad_mutation_of_the_branch_not_taken_is_refused_too() {
    let server = Server::with_table();
    let mut client = server.client();
    for (request, code) in [
        (check(None, vec![], vec![]), Code::InvalidArgument),
        (check(None, vec![set("h", "q", 0, "")], vec![set("f", "q", 0, "")]), Code::NotFound),
    ] {
        let status = client.check_and_mutate_row(request).await.unwrap_err();
        assert_eq!(status.code(), code);
        assert!(read_all(&mut client).await.is_empty());
    }
}

#[tokio::test]
async fn a_predicate_for_another_row_does_not_match() {
    let server = Server::with_table();
    let mut client = server.client();
    write(&mut client, "r", vec![set("f", "q", 1000, "v")]).await;
    for (pattern, expected) in [("r", true), ("x", false), ("x|y", false), ("x|r", true)] {
        let filter = v2::row_filter::Filter::RowKeyRegexFilter(pattern.into());
        let filter = v2::RowFilter { filter: Some(filter) };
        let request = check(Some(filter), vec![set("f", "q", 1000, "v")], vec![]);
        assert_eq!(matched(&mut client, request).await, expected, "{pattern}");
    }
}
