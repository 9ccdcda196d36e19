//! Writing rows through the API: each mutation, what is rejected, and what a
//! rejected request leaves behind.

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::mutation::{
    AddToCell, DeleteFromColumn, DeleteFromFamily, DeleteFromRow, MergeToCell, Mutation,
};
use stele_bigtable::proto::v2::value::Kind;
use tonic::Code;

use crate::data_calls::*;
use crate::server::Server;

fn delete_row() -> v2::Mutation {
    mutation(Mutation::DeleteFromRow(DeleteFromRow {}))
}

fn delete_family(family: &str) -> v2::Mutation {
    mutation(Mutation::DeleteFromFamily(DeleteFromFamily { family_name: family.into() }))
}

fn delete_column(qualifier: &str, times: Option<(i64, i64)>) -> v2::Mutation {
    mutation(Mutation::DeleteFromColumn(DeleteFromColumn {
        family_name: "f".into(),
        column_qualifier: qualifier.as_bytes().to_vec().into(),
        time_range: times.map(|(start, end)| v2::TimestampRange {
            start_timestamp_micros: start,
            end_timestamp_micros: end,
        }),
    }))
}

fn typed(kind: Kind) -> Option<v2::Value> {
    Some(v2::Value { kind: Some(kind), r#type: None })
}

pub fn add(family: &str, amount: i64) -> v2::Mutation {
    mutation(Mutation::AddToCell(AddToCell {
        family_name: family.into(),
        column_qualifier: typed(Kind::RawValue("q".into())),
        timestamp: typed(Kind::RawTimestampMicros(0)),
        input: typed(Kind::IntValue(amount)),
    }))
}

fn merge(family: &str, state: Option<&[u8]>) -> v2::Mutation {
    mutation(Mutation::MergeToCell(MergeToCell {
        family_name: family.into(),
        column_qualifier: typed(Kind::RawValue("q".into())),
        timestamp: typed(Kind::RawTimestampMicros(0)),
        input: state.and_then(|state| typed(Kind::RawValue(state.to_vec().into()))),
    }))
}

/// Returns the cell of an aggregate as the tests read it.
pub fn aggregate(family: &str, number: i64) -> String {
    format!("{family}:q@0={}", number.to_be_bytes().escape_ascii())
}

/// Returns the status of a rejected mutation.
async fn refused(client: &mut Client, mutations: Vec<v2::Mutation>) -> (Code, String) {
    let status = client.mutate_row(mutate("r", mutations)).await.unwrap_err();
    (status.code(), status.message().into())
}

#[tokio::test]
async fn mutations_apply_in_order() {
    let server = Server::with_table();
    let mut client = server.client();
    write(
        &mut client,
        "r",
        vec![
            set("f", "a", 1000, "1"),
            set("f", "a", 2000, "2"),
            set("f", "a", 3000, "3"),
            set("f", "b", 1000, "x"),
            set("g", "c", 1000, "y"),
        ],
    )
    .await;
    write(
        &mut client,
        "r",
        vec![
            delete_column("a", Some((1000, 3000))),
            set("f", "a", 1000, "again"),
            delete_family("g"),
            set("g", "d", 5000, "z"),
            delete_column("b", None),
        ],
    )
    .await;
    let rows = read_all(&mut client).await;
    assert_eq!(rows["r"], ["f:a@3000=3", "f:a@1000=again", "g:d@5000=z"]);
    write(&mut client, "r", vec![set("f", "a", 9000, "gone"), delete_row()]).await;
    assert!(read_all(&mut client).await.is_empty());
}

#[tokio::test]
async fn a_write_older_than_a_delete_is_seen_when_it_comes_later() {
    let server = Server::with_table();
    let mut client = server.client();
    write(&mut client, "r", vec![set("f", "a", 5000, "old")]).await;
    write(&mut client, "r", vec![delete_row()]).await;
    write(&mut client, "r", vec![set("f", "a", 1000, "new")]).await;
    assert_eq!(read_all(&mut client).await["r"], ["f:a@1000=new"]);
}

#[tokio::test]
async fn server_time_is_one_for_all_cells_and_in_milliseconds() {
    let server = Server::with_table();
    let mut client = server.client();
    write(&mut client, "r", vec![set("f", "a", -1, "1"), set("f", "b", -1, "2")]).await;
    let rows = read_all(&mut client).await;
    let time = |cell: &String| {
        let (_, rest) = cell.split_once('@').unwrap();
        rest.split_once('=').unwrap().0.parse::<i64>().unwrap()
    };
    let times: Vec<i64> = rows["r"].iter().map(time).collect();
    assert_eq!(times[0], times[1]);
    assert_eq!(times[0] % 1000, 0);
    assert!(times[0] > 1_700_000_000_000_000);
}

#[tokio::test]
async fn bad_mutations_are_refused_and_leave_nothing_behind() {
    let server = Server::with_table();
    let mut client = server.client();
    let long = "q".repeat((16 << 10) + 1);
    let many = vec![set("f", "a", 0, ""); 100_001];
    let mut off_grid_by_client = set("f", "a", 1234, "");
    off_grid_by_client.timestamp_origin = 2;
    let cases: Vec<(Vec<v2::Mutation>, Code, &str)> = vec![
        (vec![], Code::InvalidArgument, "No mutations provided"),
        (many, Code::InvalidArgument, "Too many mutations: 100001 provided; limit 100000"),
        (vec![v2::Mutation::default()], Code::InvalidArgument, "No mutation set"),
        (vec![set("h", "a", 0, "")], Code::NotFound, "Requested column family not found"),
        (vec![delete_family("h")], Code::NotFound, "Requested column family not found"),
        (vec![set("f", "a", -2, "")], Code::InvalidArgument, "must not be negative"),
        (
            vec![set("f", "a", 1234, "")],
            Code::InvalidArgument,
            "Timestamp granularity mismatch. Expected a multiple of 1000 (millisecond granularity), but got 1234.",
        ),
        (vec![set("f", &long, 0, "")], Code::InvalidArgument, "exceeds the limit of 16384"),
        (vec![delete_column("a", Some((2000, 1000)))], Code::InvalidArgument, "must be less than"),
        (vec![delete_column("a", Some((1000, 1000)))], Code::InvalidArgument, "must be less than"),
        (vec![delete_column("a", Some((1, 0)))], Code::InvalidArgument, "granularity mismatch"),
        (vec![set("sum", "q", 0, "")], Code::InvalidArgument, "is an aggregate"),
        (vec![add("f", 1)], Code::InvalidArgument, "is not an aggregate"),
        (vec![merge("sum", Some(b"short"))], Code::InvalidArgument, "64-bit"),
        (vec![add("h", 1)], Code::NotFound, "Requested column family not found"),
    ];
    for (bad, code, text) in cases {
        let mut mutations = bad.clone();
        if !bad.is_empty() && bad.len() < 1000 {
            mutations.insert(0, set("f", "first", 1000, "v"));
        }
        let (found, message) = refused(&mut client, mutations).await;
        assert_eq!(found, code, "{text}: {message}");
        assert!(message.contains(text), "{message}");
        assert!(read_all(&mut client).await.is_empty(), "{text} left something behind");
    }
    write(&mut client, "r", vec![off_grid_by_client]).await;
    assert_eq!(read_all(&mut client).await["r"], ["f:a@1000="]);
    for key in ["", &"k".repeat(4097)] {
        let status = client.mutate_row(mutate(key, vec![set("f", "a", 0, "")])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    let missing = v2::MutateRowRequest {
        table_name: "projects/p/instances/i/tables/none".into(),
        ..mutate("r", vec![set("f", "a", 0, "")])
    };
    let status = client.mutate_row(missing).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("projects/p/instances/i/tables/none"));
}

#[tokio::test]
async fn aggregates_fold_what_is_added() {
    let server = Server::with_table();
    let mut client = server.client();
    for amount in [5i64, -7, 3] {
        for family in ["sum", "min", "max"] {
            write(&mut client, "r", vec![add(family, amount)]).await;
        }
    }
    write(&mut client, "r", vec![merge("sum", Some(&100i64.to_be_bytes())), merge("sum", None)])
        .await;
    let expected = [aggregate("max", 5), aggregate("min", -7), aggregate("sum", 101)];
    assert_eq!(read_all(&mut client).await["r"], expected);
}

#[tokio::test]
async fn merging_nothing_into_a_missing_row_makes_no_row() {
    let server = Server::with_table();
    let mut client = server.client();
    write(&mut client, "r", vec![merge("sum", None)]).await;
    assert!(read_all(&mut client).await.is_empty());
}

fn entry(key: &str, mutations: Vec<v2::Mutation>) -> v2::mutate_rows_request::Entry {
    v2::mutate_rows_request::Entry {
        row_key: key.as_bytes().to_vec().into(),
        mutations,
        idempotency: None,
    }
}

async fn mutate_rows(
    client: &mut Client,
    entries: Vec<v2::mutate_rows_request::Entry>,
) -> Result<Vec<i32>, tonic::Status> {
    let request = v2::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
    let mut stream = client.mutate_rows(request).await?.into_inner();
    let mut codes = Vec::new();
    while let Some(message) = stream.message().await? {
        for entry in message.entries {
            assert_eq!(entry.index as usize, codes.len());
            codes.push(entry.status.unwrap().code);
        }
    }
    Ok(codes)
}

#[tokio::test]
async fn the_answer_to_a_bulk_request_comes_in_messages_that_every_client_accepts() {
    let server = Server::with_table();
    let long = "no-such-family".repeat(1000);
    let entries = (0..20_000).map(|i| {
        let family = if i == 7 { &long } else { "no-such-family" };
        entry(&format!("r{i:05}"), vec![set(family, "q", 0, "")])
    });
    let request = v2::MutateRowsRequest {
        table_name: TABLE.into(),
        entries: entries.collect(),
        ..Default::default()
    };
    let mut client = server.client().max_decoding_message_size(1 << 20);
    let mut stream = client.mutate_rows(request).await.unwrap().into_inner();
    let mut entries = Vec::new();
    let mut messages = 0;
    while let Some(message) = stream.message().await.unwrap() {
        messages += 1;
        entries.extend(message.entries);
    }
    assert!(messages > 1, "{messages} messages");
    for (at, entry) in entries.iter().enumerate() {
        let status = entry.status.as_ref().unwrap();
        assert_eq!((entry.index, status.code), (at as i64, Code::NotFound as i32));
    }
    assert_eq!(entries.len(), 20_000);
}

#[tokio::test]
async fn entries_of_a_bulk_request_stand_alone() {
    let server = Server::with_table();
    let mut client = server.client();
    let codes = mutate_rows(
        &mut client,
        vec![
            entry("c", vec![set("f", "q", 1000, "first"), delete_row()]),
            entry("a", vec![set("f", "q", 1000, "1")]),
            entry("b", vec![set("f", "q", 1000, "lost"), set("nope", "q", 1000, "1")]),
            entry("c", vec![set("f", "q", 2000, "second")]),
            entry("", vec![set("f", "q", 1000, "1")]),
            entry("d", vec![]),
        ],
    )
    .await
    .unwrap();
    let (invalid, missing) = (Code::InvalidArgument as i32, Code::NotFound as i32);
    assert_eq!(codes, [0, 0, missing, 0, invalid, invalid]);
    let rows = read_all(&mut client).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(rows["c"], ["f:q@2000=second"]);

    for entries in [vec![], vec![entry("a", vec![])]] {
        let status = mutate_rows(&mut client, entries).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("No mutations provided"));
    }
}

#[tokio::test]
async fn a_large_bulk_request_is_several_commits_and_one_answer() {
    let server = Server::with_table();
    let mut client = server.client();
    let value = vec![b'v'; 100 << 10];
    let entries = (0..200).map(|i| entry(&format!("r{i:03}"), vec![set("f", "q", 0, &value[..])]));
    let codes = mutate_rows(&mut client, entries.collect()).await.unwrap();
    assert_eq!(codes, vec![0; 200]);
    assert_eq!(read_all(&mut client).await.len(), 200);
}

#[tokio::test]
async fn a_token_is_applied_once_also_after_a_restart() {
    let mut server = Server::with_table();
    let now = std::time::SystemTime::now();
    let once = |token: &'static str, start: std::time::SystemTime| v2::MutateRowRequest {
        idempotency: Some(v2::Idempotency { token: token.into(), start_time: Some(start.into()) }),
        ..mutate("r", vec![add("sum", 1)])
    };
    let mut client = server.client();
    for _ in 0..3 {
        client.mutate_row(once("token-one", now)).await.unwrap();
    }
    client.mutate_row(once("token-two", now)).await.unwrap();
    drop(client);
    server.restart();
    let mut client = server.client();
    client.mutate_row(once("token-one", now)).await.unwrap();
    let expected = aggregate("sum", 2);
    assert_eq!(read_all(&mut client).await["r"], [expected]);

    let stale = now - std::time::Duration::from_secs(16 * 60);
    for bad in [once("short", now), once("token-three", stale)] {
        let status = client.mutate_row(bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_token_belongs_to_one_row_of_one_table() {
    let server = Server::with_table();
    let mut client = server.client();
    let start_time = Some(std::time::SystemTime::now().into());
    let idempotency = Some(v2::Idempotency { token: "one-token".into(), start_time });
    let once = |key: &str| v2::mutate_rows_request::Entry {
        idempotency: idempotency.clone(),
        ..entry(key, vec![add("sum", 1)])
    };
    for _ in 0..2 {
        let codes = mutate_rows(&mut client, vec![once("a"), once("b"), once("a")]).await.unwrap();
        assert_eq!(codes, [0, 0, 0]);
    }
    let single = v2::MutateRowRequest { idempotency, ..mutate("c", vec![add("sum", 1)]) };
    client.mutate_row(single.clone()).await.unwrap();
    let other = format!("{TABLE}-other");
    server.api().tables().create(&other, definition()).unwrap();
    let table_name = other.clone();
    client.mutate_row(v2::MutateRowRequest { table_name, ..single }).await.unwrap();
    let others = v2::ReadRowsRequest { table_name: other, ..all() };
    assert_eq!(read(&mut client, others).await.unwrap().len(), 1);
    let expected = aggregate("sum", 1);
    let rows = read_all(&mut client).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(rows.values().all(|cells| *cells == [expected.clone()]), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_requests_with_one_token_one_is_applied() {
    let server = Server::with_table();
    let start_time = Some(std::time::SystemTime::now().into());
    let idempotency = Some(v2::Idempotency { token: "one-token".into(), start_time });
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.client();
            let request = v2::MutateRowRequest {
                idempotency: idempotency.clone(),
                ..mutate("r", vec![add("sum", 1)])
            };
            tokio::spawn(async move { client.mutate_row(request).await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let expected = aggregate("sum", 1);
    assert_eq!(read_all(&mut server.client()).await["r"], [expected]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_family_that_changes_its_kind_never_holds_cells_of_the_other() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use stele_bigtable::table::{Definition, Successor};

    let server = Server::with_table();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = [set("f", "q", 0, "v"), add("f", 1)]
        .into_iter()
        .map(|mutation| {
            let (mut client, stop) = (server.client(), stop.clone());
            tokio::spawn(async move {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    match client.mutate_row(mutate("r", vec![mutation.clone()])).await {
                        Ok(_) => written += 1,
                        Err(status) => assert_eq!(status.code(), Code::InvalidArgument, "{status}"),
                    }
                }
                written
            })
        })
        .collect();
    let mut client = server.client();
    for round in 0..30 {
        let kind = if round % 2 == 0 { "sum" } else { "g" };
        let change = |old: &Definition| {
            let mut definition = old.clone();
            definition.families.insert("f".into(), old.families[kind].clone());
            Ok(Successor { definition, emptied: ["f".to_string()].into() })
        };
        let tables = server.api().tables().clone();
        tokio::task::spawn_blocking(move || tables.alter(TABLE, change)).await.unwrap().unwrap();
        for _ in 0..20 {
            let rows = read_all(&mut client).await;
            let set = |cell: &&String| cell.ends_with("=v");
            let sets = rows.values().flatten().filter(set).count();
            let cells = rows.values().flatten().count();
            let expected = if kind == "sum" { 0 } else { cells };
            assert_eq!(sets, expected, "round {round}: {rows:?}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 0, "a writer never wrote");
    }
}
