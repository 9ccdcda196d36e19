//! What CreateTable creates, and what it rejects.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use prost_types::Duration;
use stele_bigtable::proto::admin::create_table_request::Split;
use stele_bigtable::proto::admin::gc_rule::{Intersection, Rule, Union};
use stele_bigtable::proto::admin::table::{
    AutomatedBackupConfig, AutomatedBackupPolicy, ClusterState,
};
use stele_bigtable::proto::admin::r#type::aggregate::{
    Aggregator, HyperLogLogPlusPlusUniqueCount, Sum,
};
use stele_bigtable::proto::admin::r#type::{self, Aggregate, Int64, Kind, Struct};
use stele_bigtable::proto::admin::{
    ChangeStreamConfig, ColumnFamily, CreateTableRequest, RestoreInfo, Table, TieredStorageConfig,
    Type,
};
use tonic::Code;

use super::calls::{PARENT, name, plain, refused, request, rule, versions};
use crate::server::Server;

fn with_family(family: ColumnFamily) -> Table {
    Table { column_families: BTreeMap::from([("f".into(), family)]), ..Table::default() }
}

fn typed(kind: Kind) -> ColumnFamily {
    ColumnFamily { value_type: Some(Type { kind: Some(kind) }), ..ColumnFamily::default() }
}

fn aggregate(aggregator: Aggregator) -> ColumnFamily {
    let input = Type { kind: Some(Kind::Int64Type(Int64::default())) };
    typed(Kind::AggregateType(Box::new(Aggregate {
        input_type: Some(Box::new(input)),
        state_type: None,
        aggregator: Some(aggregator),
    })))
}

#[tokio::test]
async fn a_table_is_answered_with_its_families_rules_types_and_granularity() {
    let server = Server::start();
    let age = Rule::MaxAge(Duration { seconds: 9, nanos: 20_000 });
    let all = Intersection { rules: vec![rule(age), rule(Rule::MaxNumVersions(2))] };
    let any = Union { rules: vec![rule(Rule::Intersection(all)), rule(Rule::MaxNumVersions(9))] };
    let nested = ColumnFamily { gc_rule: Some(rule(Rule::Union(any))), value_type: None };
    let mut families = BTreeMap::from([
        ("empty".to_string(), ColumnFamily::default()),
        ("nested".to_string(), nested),
        ("text".to_string(), typed(Kind::StringType(r#type::String::default()))),
        ("total".to_string(), aggregate(Aggregator::Sum(Sum {}))),
        ("versions".to_string(), versions(10)),
    ]);
    let declared = Table { column_families: families.clone(), ..Table::default() };
    let created = server.tables().create_table(request("t", declared)).await.unwrap().into_inner();
    assert_eq!(created.name, name("t"));
    families.insert("empty".to_string(), plain());
    assert_eq!(created.column_families, families);
    assert_eq!(created.granularity, 1, "milliseconds by default");
    assert_eq!(server.get("t").await.unwrap(), created);
}

#[tokio::test]
async fn a_family_whose_map_entry_has_no_value_is_made() {
    let server = Server::start();
    // Family `f`: a map entry (field 3 of the table) with a key and no value.
    let table = [0x1A, 3, 0x0A, 1, b'f'];
    let table = Table::decode(&table[..]).unwrap();
    server.tables().create_table(request("t", table)).await.unwrap();
    server.write("t", b"r", "f", b"v");
    assert_eq!(server.cells("t"), ["r/f=v"]);
}

#[tokio::test]
async fn an_instance_need_not_be_made_and_a_table_message_need_not_be_sent() {
    let server = Server::start();
    let parent = "projects/any.thing:x/instances/q".to_string();
    let request =
        CreateTableRequest { parent, table_id: "_t.1".into(), ..CreateTableRequest::default() };
    let created = server.tables().create_table(request).await.unwrap().into_inner();
    assert_eq!(created.name, "projects/any.thing:x/instances/q/tables/_t.1");
}

#[tokio::test]
async fn splits_are_kept_sorted_and_each_once() {
    let server = Server::start();
    let split = |key: &'static str| Split { key: Bytes::from(key) };
    let with_splits = CreateTableRequest {
        initial_splits: ["m", "b", "m", "z"].map(split).to_vec(),
        ..request("t", Table::default())
    };
    server.tables().create_table(with_splits).await.unwrap();
    let table = server.api().tables().get(&name("t")).unwrap();
    assert_eq!(table.definition.splits, [b"b", b"m", b"z"]);
    let empty =
        CreateTableRequest { initial_splits: vec![split("")], ..request("u", Table::default()) };
    let answer = server.tables().create_table(empty).await;
    refused(answer, Code::InvalidArgument, "Row keys must be non-empty");
}

#[tokio::test]
async fn micros_are_a_granularity_and_unknown_ones_are_refused() {
    let server = Server::start();
    let with_granularity = |granularity| Table { granularity, ..Table::default() };
    let created =
        server.tables().create_table(request("t", with_granularity(2))).await.unwrap().into_inner();
    assert_eq!(created.granularity, 2);
    let answer = server.tables().create_table(request("u", with_granularity(3))).await;
    refused(answer, Code::InvalidArgument, "granularity");
}

#[tokio::test]
async fn a_name_is_used_once() {
    let server = Server::start();
    server.create("t", &["f"]).await;
    let answer = server.tables().create_table(request("t", Table::default())).await;
    refused(answer, Code::AlreadyExists, &format!("already exists: {}", name("t")));
}

#[tokio::test]
async fn malformed_names_are_refused_and_nothing_is_made() {
    let server = Server::start();
    let mut wrong = vec![request("", Table::default()), request("a b", Table::default())];
    wrong.push(request(&"t".repeat(51), Table::default()));
    for parent in
        ["", "projects/p", "projects/p/instances/", "instances/i", PARENT.trim_end_matches('i')]
    {
        wrong.push(CreateTableRequest { parent: parent.into(), ..request("t", Table::default()) });
    }
    for request in wrong {
        let answer = server.tables().create_table(request).await;
        refused(answer, Code::InvalidArgument, "expected in the form");
    }
    let named = Table { name: name("t"), ..Table::default() };
    let answer = server.tables().create_table(request("t", named)).await;
    refused(answer, Code::InvalidArgument, "table.name");
    for family in ["", "a b", "a/b", &"f".repeat(65)] {
        let families = BTreeMap::from([(family.to_string(), ColumnFamily::default())]);
        let table = Table { column_families: families, ..Table::default() };
        let answer = server.tables().create_table(request("t", table)).await;
        refused(answer, Code::InvalidArgument, "column family name");
    }
    assert!(server.api().tables().all().is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name_never_left_out() {
    let server = Server::start();
    let policy = AutomatedBackupConfig::AutomatedBackupPolicy(AutomatedBackupPolicy::default());
    let table = Table::default;
    for (table, field) in [
        (
            Table { change_stream_config: Some(ChangeStreamConfig::default()), ..table() },
            "change_stream_config",
        ),
        (Table { row_key_schema: Some(Struct::default()), ..table() }, "row_key_schema"),
        (Table { automated_backup_config: Some(policy), ..table() }, "automated_backup_policy"),
        (
            Table { tiered_storage_config: Some(TieredStorageConfig::default()), ..table() },
            "tiered_storage_config",
        ),
        (Table { restore_info: Some(RestoreInfo::default()), ..table() }, "restore_info"),
        (
            with_family(aggregate(Aggregator::HllppUniqueCount(HyperLogLogPlusPlusUniqueCount {}))),
            "hllpp_unique_count",
        ),
        (with_family(typed(Kind::ProtoType(r#type::Proto::default()))), "proto_type"),
    ] {
        let answer = server.tables().create_table(request("t", table)).await;
        refused(answer, Code::Unimplemented, field);
    }
    let states = BTreeMap::from([("c".to_string(), ClusterState::default())]);
    let with_states = Table { cluster_states: states, ..table() };
    let answer = server.tables().create_table(request("t", with_states)).await;
    refused(answer, Code::InvalidArgument, "cluster_states");
}

#[tokio::test]
async fn rules_and_types_that_make_no_sense_are_refused() {
    let server = Server::start();
    let ruled = |rule| ColumnFamily { gc_rule: Some(rule), ..ColumnFamily::default() };
    let age = |seconds, nanos| ruled(rule(Rule::MaxAge(Duration { seconds, nanos })));
    let large = Union { rules: vec![rule(Rule::MaxNumVersions(1)); 200] };
    let mut deep = rule(Rule::MaxNumVersions(1));
    for _ in 0..40 {
        deep = rule(Rule::Union(Union { rules: vec![deep] }));
    }
    for (family, text) in [
        (versions(0), "max_num_versions"),
        (versions(-1), "max_num_versions"),
        (age(0, 999_999), "max_age"),
        (age(-1, 0), "max_age"),
        (ruled(rule(Rule::Union(large))), "500"),
        (ruled(deep), "nests"),
        (typed(Kind::AggregateType(Box::default())), "aggregate_type"),
    ] {
        let answer = server.tables().create_table(request("t", with_family(family))).await;
        refused(answer, Code::InvalidArgument, text);
    }
}
