//! Reading rows through the API: selection, order and framing.

use prost::Message;
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::read_rows_response::cell_chunk::RowStatus;
use stele_bigtable::proto::v2::row_filter::{Chain, Filter};
use stele_bigtable::proto::v2::row_range::{EndKey, StartKey};
use tonic::{Code, Request};

use crate::data_calls::*;
use crate::server::Server;

fn filter(filter: Filter) -> v2::RowFilter {
    v2::RowFilter { filter: Some(filter) }
}

fn chain(filters: Vec<Filter>) -> v2::RowFilter {
    let filters = filters.into_iter().map(filter).collect();
    v2::RowFilter { filter: Some(Filter::Chain(Chain { filters })) }
}

fn keys(keys: &[&'static str]) -> Option<v2::RowSet> {
    let row_keys = keys.iter().map(|key| (*key).into()).collect();
    Some(v2::RowSet { row_keys, row_ranges: Vec::new() })
}

fn range(start: &'static str, end: &'static str) -> v2::RowRange {
    v2::RowRange {
        start_key: Some(StartKey::StartKeyClosed(start.into())),
        end_key: Some(EndKey::EndKeyOpen(end.into())),
    }
}

/// Writes ten rows, `r0` to `r9`, half of them flushed to disk.
async fn ten_rows() -> (Server, Client) {
    let server = Server::with_table();
    let mut client = server.client();
    for i in 0..10 {
        let cells = vec![
            set("f", "a", 2000, format!("new{i}")),
            set("f", "a", 1000, format!("old{i}")),
            set("g", "b", 1000, format!("b{i}")),
        ];
        write(&mut client, &format!("r{i}"), cells).await;
        if i == 4 {
            let table = server.store().table(TABLE).unwrap();
            server.store().flush(table).unwrap();
        }
    }
    (server, client)
}

async fn found(client: &mut Client, request: v2::ReadRowsRequest) -> Vec<String> {
    read(client, request).await.unwrap().into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn the_requested_rows_are_returned_once_and_in_order() {
    let (_server, mut client) = ten_rows().await;
    let rows = Some(v2::RowSet {
        row_keys: vec!["r7".into(), "r3".into(), "r7".into(), "none".into()],
        row_ranges: vec![range("r2", "r4"), range("r3", "r5"), range("r9", "")],
    });
    let request = v2::ReadRowsRequest { rows: rows.clone(), ..all() };
    assert_eq!(found(&mut client, request).await, ["r2", "r3", "r4", "r7", "r9"]);
    let request = v2::ReadRowsRequest { rows, reversed: true, rows_limit: 3, ..all() };
    assert_eq!(found(&mut client, request).await, ["r9", "r7", "r4"]);
    let request = v2::ReadRowsRequest { rows: keys(&["none"]), ..all() };
    assert!(found(&mut client, request).await.is_empty());
    assert_eq!(found(&mut client, all()).await.len(), 10);
}

#[tokio::test]
async fn a_limit_counts_rows_that_are_sent() {
    let (_server, mut client) = ten_rows().await;
    let odd = filter(Filter::RowKeyRegexFilter(r"r[13579]".into()));
    let request = v2::ReadRowsRequest { filter: Some(odd), rows_limit: 3, ..all() };
    assert_eq!(found(&mut client, request).await, ["r1", "r3", "r5"]);
    let value = filter(Filter::ValueRegexFilter("new[5-9]".into()));
    let request = v2::ReadRowsRequest { filter: Some(value), rows_limit: 2, ..all() };
    assert_eq!(found(&mut client, request).await, ["r5", "r6"]);
    let request = v2::ReadRowsRequest { rows_limit: 4, reversed: true, ..all() };
    assert_eq!(found(&mut client, request).await, ["r9", "r8", "r7", "r6"]);
}

#[tokio::test]
async fn filters_choose_and_change_cells() {
    let (_server, mut client) = ten_rows().await;
    let rows = keys(&["r3"]);
    for (chosen, expected) in [
        (filter(Filter::CellsPerColumnLimitFilter(1)), vec!["f:a@2000=new3", "g:b@1000=b3"]),
        (filter(Filter::CellsPerRowLimitFilter(1)), vec!["f:a@2000=new3"]),
        (filter(Filter::CellsPerRowOffsetFilter(1)), vec!["f:a@1000=old3", "g:b@1000=b3"]),
        (filter(Filter::FamilyNameRegexFilter("g".into())), vec!["g:b@1000=b3"]),
        (
            chain(vec![
                Filter::ColumnQualifierRegexFilter("a".into()),
                Filter::StripValueTransformer(true),
                Filter::ApplyLabelTransformer("seen".into()),
            ]),
            vec!["f:a@2000=#seen", "f:a@1000=#seen"],
        ),
    ] {
        let request = v2::ReadRowsRequest { rows: rows.clone(), filter: Some(chosen), ..all() };
        assert_eq!(read(&mut client, request).await.unwrap()[0].1, expected);
    }
}

#[tokio::test]
async fn bad_requests_are_refused_before_anything_is_read() {
    let (_server, mut client) = ten_rows().await;
    let mut unknown = v2::RowFilter::default().encode_to_vec();
    // Field 99 of a filter is unknown.
    unknown.extend([0x98, 0x06, 0x01]);
    let bad = [
        v2::ReadRowsRequest { rows_limit: -1, ..all() },
        v2::ReadRowsRequest { rows: keys(&[""]), ..all() },
        v2::ReadRowsRequest {
            rows: Some(v2::RowSet { row_keys: vec![], row_ranges: vec![range("b", "a")] }),
            ..all()
        },
        v2::ReadRowsRequest { filter: Some(filter(Filter::PassAllFilter(false))), ..all() },
        v2::ReadRowsRequest { filter: Some(filter(Filter::ValueRegexFilter("(".into()))), ..all() },
        v2::ReadRowsRequest { request_stats_view: 77, ..all() },
        v2::ReadRowsRequest { table_name: "nonsense".into(), ..all() },
        v2::ReadRowsRequest { authorized_view_name: "x".into(), ..all() },
    ];
    for request in bad {
        let status = read(&mut client, request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{request:?}: {status}");
    }
    let missing = v2::ReadRowsRequest { table_name: format!("{TABLE}x"), ..all() };
    assert_eq!(read(&mut client, missing).await.unwrap_err().code(), Code::NotFound);
}

/// Writes rows of these sizes, in cells of `cell_bytes`, half of them flushed to
/// disk.
async fn rows_of_sizes(sizes: &[(usize, usize)]) -> (Server, Client) {
    let server = Server::with_table();
    let mut client = server.client();
    for (at, (row_bytes, cell_bytes)) in sizes.iter().enumerate() {
        let cells = (0..row_bytes / cell_bytes)
            .map(|cell| set("f", &format!("q{cell:05}"), 0, vec![b'v'; *cell_bytes]));
        write(&mut client, &format!("r{at:03}"), cells.collect()).await;
        if at == sizes.len() / 2 {
            let table = server.store().table(TABLE).unwrap();
            server.store().flush(table).unwrap();
        }
    }
    (server, client)
}

#[tokio::test]
async fn messages_end_between_rows_and_fit_a_client_s_default_limit() {
    let mut sizes = vec![(20 << 10, 1 << 10); 30];
    sizes.extend([(300 << 10, 1 << 10); 3]);
    sizes.extend([(3 << 20, 1 << 20), (3 << 20, 3 << 20), (3 << 20, 100 << 10), (100, 100)]);
    let (_server, mut client) = rows_of_sizes(&sizes).await;
    let filtered = Some(filter(Filter::FamilyNameRegexFilter("f|x".into())));
    for (filter, reversed) in [(None, false), (None, true), (filtered, false)] {
        let request = v2::ReadRowsRequest { filter, reversed, ..all() };
        let mut stream = client.read_rows(request.clone()).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            assert!(message.encoded_len() < 4 << 20, "{} bytes", message.encoded_len());
            let last = message.chunks.last().unwrap();
            assert_eq!(last.row_status, Some(RowStatus::CommitRow(true)));
        }
        let mut rows = read(&mut client, request).await.unwrap();
        rows.sort();
        let cells: Vec<usize> = rows.iter().map(|(_, cells)| cells.len()).collect();
        assert_eq!(cells, sizes.iter().map(|(row, cell)| row / cell).collect::<Vec<_>>());
    }
    for at in [3, 33, 34, 35] {
        let row_keys = vec![format!("r{at:03}").into()];
        let rows = Some(v2::RowSet { row_keys, row_ranges: Vec::new() });
        let request = v2::ReadRowsRequest { rows, ..all() };
        let mut stream = client.read_rows(request).await.unwrap().into_inner();
        let message = stream.message().await.unwrap().unwrap();
        assert!(message.chunks.last().unwrap().row_status.is_some(), "row {at} in one message");
        assert!(stream.message().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn larger_rows_come_in_messages_of_bounded_size() {
    let sizes = [(5 << 20, 5 << 20), (5 << 20, 1000), (9 << 20, 3 << 20), (100, 100)];
    let (_server, mut client) = rows_of_sizes(&sizes).await;
    let mut stream = client.read_rows(all()).await.unwrap().into_inner();
    while let Some(message) = stream.message().await.unwrap() {
        assert!(message.encoded_len() < 4 << 20, "{} bytes", message.encoded_len());
        assert!(message.chunks.iter().all(|chunk| chunk.value.len() <= 1 << 20));
    }
    for reversed in [false, true] {
        let mut rows = read(&mut client, v2::ReadRowsRequest { reversed, ..all() }).await.unwrap();
        rows.sort();
        assert_eq!(rows[0].1, ["f:q00000@0=(5242880 bytes)"]);
        assert_eq!((rows[1].1.len(), rows[2].1.len(), rows[3].1.len()), (5242, 3, 1));
    }
    let one = v2::ReadRowsRequest { rows: keys(&["r001"]), ..all() };
    assert_eq!(read(&mut client, one).await.unwrap()[0].1.len(), 5242);
}

#[tokio::test]
async fn a_row_of_many_cells_over_256_mib_is_refused_by_name_and_rows_behind_it_are_read() {
    const CELLS: usize = 260;
    let server = Server::with_table();
    let mut client = server.client();
    for from in (0..CELLS).step_by(20) {
        let cell = |at: usize| set("f", &format!("q{at:03}"), 0, vec![b'v'; 1 << 20]);
        write(&mut client, "b-large", (from..from + 20).map(cell).collect()).await;
    }
    for key in ["a", "c"] {
        write(&mut client, key, vec![set("f", "q", 0, "v")]).await;
    }
    let mut stream = client.read_rows(all()).await.unwrap().into_inner();
    let mut committed = Vec::new();
    let status = loop {
        match stream.message().await {
            Ok(Some(message)) => {
                let chunks = message.chunks.into_iter();
                committed.extend(chunks.filter(|chunk| chunk.row_status.is_some()));
            }
            Ok(None) => panic!("the stream ends as if it were complete"),
            Err(status) => break status,
        }
    };
    assert_eq!(committed.iter().map(|chunk| &chunk.row_key[..]).collect::<Vec<_>>(), [b"a"]);
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("b-large"), "{status}");
    let behind = v2::RowSet { row_keys: Vec::new(), row_ranges: vec![range("b-large\0", "z")] };
    let behind = v2::ReadRowsRequest { rows: Some(behind), ..all() };
    assert_eq!(found(&mut client, behind).await, ["c"]);
}

#[tokio::test]
async fn statistics_count_what_was_seen_and_what_was_sent() {
    let (_server, mut client) = ten_rows().await;
    let request = v2::ReadRowsRequest {
        filter: Some(filter(Filter::ValueRegexFilter("new[57]".into()))),
        request_stats_view: 2,
        ..all()
    };
    for (request, expected) in [
        (request.clone(), [10, 2, 30, 2]),
        (v2::ReadRowsRequest { rows: keys(&["none"]), ..request.clone() }, [0, 0, 0, 0]),
        (v2::ReadRowsRequest { rows: keys(&["r5"]), ..request }, [1, 1, 3, 1]),
    ] {
        let mut stream = client.read_rows(request).await.unwrap().into_inner();
        let mut last = None;
        while let Some(message) = stream.message().await.unwrap() {
            last = Some(message);
        }
        let stats = last.unwrap().request_stats.unwrap().stats_view.unwrap();
        let v2::request_stats::StatsView::FullReadStatsView(view) = stats;
        let counts = view.read_iteration_stats.unwrap();
        let counted = [
            counts.rows_seen_count,
            counts.rows_returned_count,
            counts.cells_seen_count,
            counts.cells_returned_count,
        ];
        assert_eq!(counted, expected);
        assert!(view.request_latency_stats.unwrap().frontend_server_latency.is_some());
    }
}

#[tokio::test]
async fn a_long_stretch_without_rows_tells_how_far_it_is() {
    let server = Server::with_table();
    let mut client = server.client();
    let store = server.store();
    let table = store.table(TABLE).unwrap();
    let mut commit = stele_engine::CommitBuilder::new();
    commit.table(table);
    for i in 0..200_000 {
        commit.row(format!("r{i:06}").as_bytes()).set(b"f", b"q", 0, b"dull");
    }
    store
        .apply(&commit.finish(), stele_engine::Txn::MAX, stele_engine::Durability::Durable)
        .unwrap();
    let bright = Some(filter(Filter::ValueRegexFilter("bright".into())));
    let flags = v2::FeatureFlags { last_scanned_row_responses: true, ..Default::default() };
    for reversed in [false, true] {
        let mut request =
            Request::new(v2::ReadRowsRequest { filter: bright.clone(), reversed, ..all() });
        let flags = base64::Engine::encode(
            &base64::engine::general_purpose::URL_SAFE,
            flags.encode_to_vec(),
        );
        request.metadata_mut().insert("bigtable-features", flags.parse().unwrap());
        let mut stream = client.read_rows(request).await.unwrap().into_inner();
        let mut scanned = Vec::new();
        while let Some(message) = stream.message().await.unwrap() {
            assert!(message.chunks.is_empty());
            scanned.push(message.last_scanned_row_key);
        }
        assert!(scanned.len() > 1);
        let ordered = scanned.is_sorted_by(|a, b| if reversed { a > b } else { a < b });
        assert!(ordered, "{scanned:?}");
    }
    let mut silent = client
        .read_rows(v2::ReadRowsRequest { filter: bright, ..all() })
        .await
        .unwrap()
        .into_inner();
    assert!(
        silent.message().await.unwrap().is_none(),
        "only clients with the feature get positions"
    );
}

#[tokio::test]
async fn a_deadline_ends_a_read() {
    let (_server, mut client) = ten_rows().await;
    let mut request = Request::new(all());
    request.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
    let mut stream = client.read_rows(request).await.unwrap().into_inner();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn samples_are_the_splits_and_the_end() {
    let server = Server::start();
    let splits = ["b", "m", "t"].map(|key| key.as_bytes().to_vec()).to_vec();
    let declared = stele_bigtable::table::Definition { splits, ..definition() };
    server.api().tables().create(TABLE, declared).unwrap();
    let mut client = server.client();
    async fn sampled(client: &mut Client, row_range: Option<v2::RowRange>) -> Vec<(String, i64)> {
        let request =
            v2::SampleRowKeysRequest { table_name: TABLE.into(), row_range, ..Default::default() };
        let mut stream = client.sample_row_keys(request).await.unwrap().into_inner();
        let mut samples = Vec::new();
        while let Some(sample) = stream.message().await.unwrap() {
            samples.push((sample.row_key.escape_ascii().to_string(), sample.offset_bytes));
        }
        samples
    }
    let keys =
        |samples: &[(String, i64)]| samples.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let fresh = sampled(&mut client, None).await;
    assert_eq!(keys(&fresh), ["b", "m", "t", ""]);
    for i in 0..10 {
        write(&mut client, &format!("k{i}"), vec![set("f", "q", 0, vec![b'v'; 100])]).await;
    }
    let loaded = sampled(&mut client, None).await;
    assert!(loaded[3].1 > 0, "unflushed bytes count");
    assert!(loaded.is_sorted_by_key(|sample| sample.1));
    assert_eq!(keys(&sampled(&mut client, Some(range("c", "u"))).await), ["m", "t", "u"]);
}

#[tokio::test]
async fn samples_divide_a_table_without_splits_by_size() {
    let server = Server::with_table();
    let store = server.store();
    let table = store.table(TABLE).unwrap();
    let random: Vec<u8> = (0u64..1 << 17)
        .flat_map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes())
        .collect();
    for half in 0..2 {
        for row in 0..24 {
            let mut commit = stele_engine::CommitBuilder::new();
            commit.table(table);
            let key = format!("r{:02}", 2 * row + half);
            commit.row(key.as_bytes()).set(b"f", b"q", 0, &random);
            let applied = store.apply(
                &commit.finish(),
                stele_engine::Txn::MAX,
                stele_engine::Durability::Durable,
            );
            applied.unwrap();
        }
        store.flush(table).unwrap();
    }
    let request = v2::SampleRowKeysRequest { table_name: TABLE.into(), ..Default::default() };
    let mut client = server.client();
    let mut stream = client.sample_row_keys(request).await.unwrap().into_inner();
    let mut samples = Vec::new();
    while let Some(sample) = stream.message().await.unwrap() {
        samples.push((sample.row_key, sample.offset_bytes));
    }
    let (end, parts) = samples.split_last().unwrap();
    assert!((2..=4).contains(&samples.len()), "parts of about 16 MiB: {samples:?}");
    assert!(end.0.is_empty() && (46 << 20..60 << 20).contains(&end.1), "{samples:?}");
    assert!(samples.iter().map(|sample| sample.1).is_sorted_by(|a, b| a + (4 << 20) < *b));
    assert!(parts.is_sorted_by(|a, b| a.0 < b.0) && parts.iter().all(|part| !part.0.is_empty()));
}
