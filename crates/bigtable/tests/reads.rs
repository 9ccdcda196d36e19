//! Rows read through the API: which, in what order, and in what frames.

mod support;

use prost::Message;
use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::row_filter::{Chain, Filter};
use stele_bigtable::proto::v2::row_range::{EndKey, StartKey};
use support::*;
use tonic::{Code, Request};

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

/// Ten rows, `r0` to `r9`, half of them on disk.
async fn ten_rows() -> (Served, Client) {
    let served = Served::with_table();
    let mut client = served.client();
    for i in 0..10 {
        let cells = vec![
            set("f", "a", 2000, format!("new{i}")),
            set("f", "a", 1000, format!("old{i}")),
            set("g", "b", 1000, format!("b{i}")),
        ];
        write(&mut client, &format!("r{i}"), cells).await;
        if i == 4 {
            let table = served.store().table(TABLE).unwrap();
            served.store().flush(table).unwrap();
        }
    }
    (served, client)
}

async fn found(client: &mut Client, request: v2::ReadRowsRequest) -> Vec<String> {
    read(client, request).await.unwrap().into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn the_rows_asked_for_come_once_and_in_order() {
    let (_served, mut client) = ten_rows().await;
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
    let (_served, mut client) = ten_rows().await;
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
    let (_served, mut client) = ten_rows().await;
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
    let (_served, mut client) = ten_rows().await;
    let mut unknown = v2::RowFilter::default().encode_to_vec();
    // Field 99 of a filter is of no kind that is known.
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

#[tokio::test]
async fn long_values_and_wide_rows_come_in_messages_of_bounded_size() {
    let served = Served::with_table();
    let mut client = served.client();
    let long = vec![b'x'; 5 << 20];
    let wide = (0..3000).map(|i| set("f", &format!("q{i:05}"), 0, vec![b'w'; 1000])).collect();
    write(&mut client, "long", vec![set("f", "q", 0, &long[..]), set("g", "q", 0, "short")]).await;
    write(&mut client, "wide", wide).await;
    let mut stream = client.read_rows(all()).await.unwrap().into_inner();
    let mut messages = 0;
    while let Some(message) = stream.message().await.unwrap() {
        assert!(message.encoded_len() < 2 << 20, "{} bytes", message.encoded_len());
        messages += 1;
    }
    assert!(messages > 10);
    for reversed in [false, true] {
        let rows = read(&mut client, v2::ReadRowsRequest { reversed, ..all() }).await.unwrap();
        let rows: std::collections::BTreeMap<_, _> = rows.into_iter().collect();
        assert_eq!(rows["long"], ["f:q@0=(5242880 bytes)", "g:q@0=short"]);
        assert_eq!(rows["wide"].len(), 3000);
    }
    let one = v2::ReadRowsRequest { rows: keys(&["wide"]), ..all() };
    assert_eq!(read(&mut client, one).await.unwrap()[0].1.len(), 3000);
}

#[tokio::test]
async fn statistics_count_what_was_seen_and_what_was_sent() {
    let (_served, mut client) = ten_rows().await;
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
    let served = Served::with_table();
    let mut client = served.client();
    let store = served.store();
    let table = store.table(TABLE).unwrap();
    let mut commit = stele_engine::CommitBuilder::new();
    commit.table(table);
    for i in 0..200_000 {
        commit.row(format!("r{i:06}").as_bytes()).set(b"f", b"q", 0, b"dull");
    }
    store.apply(&commit.finish(), stele_engine::Txn::MAX, stele_engine::Wait::Durable).unwrap();
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
    assert!(silent.message().await.unwrap().is_none(), "only who asked is told");
}

#[tokio::test]
async fn a_deadline_ends_a_read() {
    let (_served, mut client) = ten_rows().await;
    let mut request = Request::new(all());
    request.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
    let mut stream = client.read_rows(request).await.unwrap().into_inner();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn samples_are_the_splits_and_the_end() {
    let served = Served::new();
    let splits = ["b", "m", "t"].map(|key| key.as_bytes().to_vec()).to_vec();
    let declared = stele_bigtable::table::Definition { splits, ..definition() };
    served.api.tables().create(TABLE, declared).unwrap();
    let mut client = served.client();
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
