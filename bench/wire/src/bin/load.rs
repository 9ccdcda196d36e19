//! Load generator for a Bigtable gRPC endpoint (plaintext, no auth).
//!
//! Each workload prints one JSON line. Rows are named `g<group>#<member>`,
//! a hundred members to a group, so a prefix scan reads one group. In scans and
//! sequential workloads each worker goes through its own part of the table.

use bytes::Bytes;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stele_bench_wire::{Flags, Plan, Rng, Step, StepResult, drive, permute};
use tonic::transport::{Channel, Endpoint};

type Client = bt::bigtable_client::BigtableClient<Channel>;
type Admin = admin::bigtable_table_admin_client::BigtableTableAdminClient<Channel>;

const PARENT: &str = "projects/p/instances/i";
const FAMILY: &str = "cf";
const GROUP: u64 = 100;
const BATCH: u64 = 100;
const COUNTERS: u64 = 1000;
const FLAGS: &[&str] = &[
    "target",
    "rows",
    "value-size",
    "concurrency",
    "seconds",
    "table",
    "workloads",
    "connections",
    "server-pid",
    "warmup",
    "keep",
    "tablets",
    "label",
    "once",
    "family",
    "reversed",
];
const ALL: &str = "load,mutate,read,scan,prefix,rmw,cam,mixed,sequential-write,sequential-read";
/// The share of writes in `mixed`, in percent.
const MIXED_WRITES: u64 = 5;

#[derive(Clone)]
struct Context {
    table: String,
    rows: u64,
    value_size: usize,
    values: Arc<Vec<Bytes>>,
    clients: Arc<Vec<Client>>,
    /// Whether each worker of a scan reads its part only once.
    once: bool,
    /// Whether ranges are read backwards.
    reversed: bool,
    /// The family that is written.
    family: String,
    /// The filter of reads.
    filter: bt::RowFilter,
}

impl Context {
    fn client(&self, worker: usize) -> Client {
        self.clients[worker % self.clients.len()].clone()
    }

    fn value(&self, rng: &mut Rng) -> Bytes {
        self.values[rng.below(self.values.len() as u64) as usize].clone()
    }
}

fn key(i: u64) -> Bytes {
    Bytes::from(format!("g{:08}#{:02}", i / GROUP, i % GROUP))
}

fn now_micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock after 1970");
    now.as_millis() as i64 * 1000
}

fn set_cell(cx: &Context, qualifier: &'static str, value: Bytes) -> bt::Mutation {
    let cell = bt::mutation::SetCell {
        family_name: cx.family.clone(),
        column_qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp_micros: now_micros(),
        value,
    };
    bt::Mutation { mutation: Some(bt::mutation::Mutation::SetCell(cell)) }
}

fn filter(filter: bt::row_filter::Filter) -> bt::RowFilter {
    bt::RowFilter { filter: Some(filter) }
}

/// Passes the newest cells, of one family or of all.
fn latest(family: Option<&str>) -> bt::RowFilter {
    use bt::row_filter::Filter;
    let newest = filter(Filter::CellsPerColumnLimitFilter(1));
    match family {
        None => newest,
        Some(family) => {
            let filters = vec![filter(Filter::FamilyNameRegexFilter(family.into())), newest];
            filter(Filter::Chain(bt::row_filter::Chain { filters }))
        }
    }
}

fn done(items: u64, bytes: u64) -> StepResult {
    Ok(Step::Done { items, bytes })
}

fn fail(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Sends one ReadRows and checks that exactly `want` rows were returned.
async fn read_rows(mut client: Client, request: bt::ReadRowsRequest, want: u64) -> StepResult {
    let mut stream = client.read_rows(request).await.map_err(fail)?.into_inner();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(response) = stream.message().await.map_err(fail)? {
        for chunk in response.chunks {
            bytes += (chunk.row_key.len() + chunk.value.len()) as u64;
            use bt::read_rows_response::cell_chunk::RowStatus;
            match chunk.row_status {
                Some(RowStatus::CommitRow(true)) => rows += 1,
                Some(RowStatus::ResetRow(true)) => return Err("the server reset a row".into()),
                _ => {}
            }
        }
    }
    if rows == want { done(rows, bytes) } else { Err(format!("expected {want} rows, got {rows}")) }
}

fn range(start: Bytes, end: Bytes) -> Option<bt::RowSet> {
    let range = bt::RowRange {
        start_key: Some(bt::row_range::StartKey::StartKeyClosed(start)),
        end_key: Some(bt::row_range::EndKey::EndKeyOpen(end)),
    };
    Some(bt::RowSet { row_keys: vec![], row_ranges: vec![range] })
}

fn read_request(cx: &Context, rows: Option<bt::RowSet>, limit: i64) -> bt::ReadRowsRequest {
    bt::ReadRowsRequest {
        table_name: cx.table.clone(),
        rows,
        filter: Some(cx.filter.clone()),
        rows_limit: limit,
        reversed: cx.reversed,
        ..Default::default()
    }
}

async fn load_batch(mut client: Client, cx: Context, first: u64, mut rng: Rng) -> StepResult {
    let last = (first + BATCH).min(cx.rows);
    let mut bytes = 0;
    let entries: Vec<_> = (first..last)
        .map(|i| {
            let row_key = key(permute(i, cx.rows));
            bytes += (row_key.len() + cx.value_size) as u64;
            let mutations = vec![set_cell(&cx, "q", cx.value(&mut rng))];
            bt::mutate_rows_request::Entry { row_key, mutations, ..Default::default() }
        })
        .collect();
    let request = bt::MutateRowsRequest { table_name: cx.table, entries, ..Default::default() };
    let mut stream = client.mutate_rows(request).await.map_err(fail)?.into_inner();
    let mut acked = 0;
    while let Some(response) = stream.message().await.map_err(fail)? {
        for entry in response.entries {
            match entry.status {
                Some(s) if s.code != 0 => return Err(s.message),
                _ => acked += 1,
            }
        }
    }
    if acked == last - first {
        done(acked, bytes)
    } else {
        Err(format!("only {acked} entries acknowledged"))
    }
}

async fn mutate(mut client: Client, cx: Context, row: u64, mut rng: Rng) -> StepResult {
    let row_key = key(row);
    let bytes = (row_key.len() + cx.value_size) as u64;
    let mutations = vec![set_cell(&cx, "q", cx.value(&mut rng))];
    let request =
        bt::MutateRowRequest { table_name: cx.table, row_key, mutations, ..Default::default() };
    client.mutate_row(request).await.map_err(fail)?;
    done(1, bytes)
}

async fn read_one(client: Client, cx: Context, row: u64) -> StepResult {
    let rows = bt::RowSet { row_keys: vec![key(row)], row_ranges: vec![] };
    read_rows(client, read_request(&cx, Some(rows), 1), 1).await
}

async fn increment(mut client: Client, cx: Context, mut rng: Rng) -> StepResult {
    let rule = bt::ReadModifyWriteRule {
        family_name: cx.family.clone(),
        column_qualifier: Bytes::from_static(b"n"),
        rule: Some(bt::read_modify_write_rule::Rule::IncrementAmount(1)),
    };
    let request = bt::ReadModifyWriteRowRequest {
        table_name: cx.table,
        row_key: Bytes::from(format!("counter{:06}", rng.below(COUNTERS))),
        rules: vec![rule],
        ..Default::default()
    };
    client.read_modify_write_row(request).await.map_err(fail)?;
    done(1, 8)
}

async fn check_and_mutate(mut client: Client, cx: Context, mut rng: Rng) -> StepResult {
    use bt::row_filter::Filter;
    let column = filter(Filter::ColumnQualifierRegexFilter(Bytes::from_static(b"q")));
    let newest = filter(Filter::CellsPerColumnLimitFilter(1));
    let chain = bt::row_filter::Chain { filters: vec![column, newest] };
    let value = Bytes::copy_from_slice(&rng.next_u64().to_be_bytes());
    let request = bt::CheckAndMutateRowRequest {
        table_name: cx.table.clone(),
        row_key: key(rng.below(cx.rows)),
        predicate_filter: Some(filter(Filter::Chain(chain))),
        true_mutations: vec![set_cell(&cx, "cam", value)],
        ..Default::default()
    };
    let response = client.check_and_mutate_row(request).await.map_err(fail)?.into_inner();
    if response.predicate_matched { done(1, 8) } else { Err("the predicate did not match".into()) }
}

async fn run(workload: &str, plan: &Plan, cx: &Context) -> stele_bench_wire::Report {
    let groups = cx.rows / GROUP;
    let seed = now_micros() as u64;
    match workload {
        "load" => {
            let next = Arc::new(AtomicU64::new(0));
            let plan = Plan { seconds: None, warmup: 0.0, ..clone_plan(plan) };
            drive(&plan, |w| {
                let (cx, next, client) = (cx.clone(), next.clone(), cx.client(w));
                let mut rng = Rng::new(seed + w as u64);
                move || {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    let (cx, client) = (cx.clone(), client.clone());
                    let rng = Rng::new(rng.next_u64());
                    async move {
                        if first >= cx.rows {
                            return Ok(Step::End);
                        }
                        load_batch(client, cx, first, rng).await
                    }
                }
            })
            .await
        }
        "scan" => {
            // Each operation reads a worker's share of the table.
            let plan = Plan { warmup: 0.0, ..clone_plan(plan) };
            drive(&plan, |w| {
                let (cx, client) = (cx.clone(), cx.client(w));
                let share = share(cx.rows, w, plan.concurrency);
                let mut ended = false;
                move || {
                    let again = !std::mem::replace(&mut ended, cx.once);
                    let (cx, client, share) = (cx.clone(), client.clone(), share.clone());
                    async move {
                        if !again {
                            return Ok(Step::End);
                        }
                        let rows = range(key(share.start), key(share.end));
                        let count = share.end - share.start;
                        read_rows(client, read_request(&cx, rows, 0), count).await
                    }
                }
            })
            .await
        }
        "sequential-write" | "sequential-read" => {
            let writes = workload == "sequential-write";
            drive(plan, |w| {
                let (cx, client) = (cx.clone(), cx.client(w));
                let mut rows = share(cx.rows, w, plan.concurrency).cycle();
                let mut rng = Rng::new(seed + w as u64);
                move || {
                    let (cx, client) = (cx.clone(), client.clone());
                    let row = rows.next().expect("at least a hundred rows for each worker");
                    let rng = Rng::new(rng.next_u64());
                    async move {
                        match writes {
                            true => mutate(client, cx, row, rng).await,
                            false => read_one(client, cx, row).await,
                        }
                    }
                }
            })
            .await
        }
        _ => {
            let workload = workload.to_string();
            drive(plan, |w| {
                let (cx, client, workload) = (cx.clone(), cx.client(w), workload.clone());
                let mut rng = Rng::new(seed + w as u64);
                move || {
                    let (cx, client) = (cx.clone(), client.clone());
                    let mut rng = Rng::new(rng.next_u64());
                    let workload = workload.clone();
                    async move {
                        let row = rng.below(cx.rows);
                        match workload.as_str() {
                            "mutate" => mutate(client, cx, row, rng).await,
                            "rmw" => increment(client, cx, rng).await,
                            "cam" => check_and_mutate(client, cx, rng).await,
                            "read" => read_one(client, cx, row).await,
                            "mixed-read" | "mixed-write" => {
                                // Both kinds are sent; one of them is counted.
                                let writes = rng.below(100) < MIXED_WRITES;
                                let counted = writes == (workload == "mixed-write");
                                let result = if writes {
                                    mutate(client, cx, row, rng).await
                                } else {
                                    read_one(client, cx, row).await
                                };
                                if counted { result } else { result.map(|_| Step::Uncounted) }
                            }
                            "prefix" => {
                                let group = rng.below(groups);
                                let rows = range(key(group * GROUP), key((group + 1) * GROUP));
                                read_rows(client, read_request(&cx, rows, 0), GROUP).await
                            }
                            other => panic!("unknown workload {other}: use {ALL}"),
                        }
                    }
                }
            })
            .await
        }
    }
}

/// Returns the rows of one worker. Together the shares cover the table.
fn share(rows: u64, worker: usize, workers: usize) -> Range<u64> {
    let (groups, worker, workers) = (rows / GROUP, worker as u64, workers as u64);
    groups * worker / workers * GROUP..groups * (worker + 1) / workers * GROUP
}

fn clone_plan(p: &Plan) -> Plan {
    let server_pids = p.server_pids.clone();
    Plan { concurrency: p.concurrency, seconds: p.seconds, warmup: p.warmup, server_pids }
}

async fn connect(target: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{target}")).expect("--target host:port");
    let endpoint = endpoint
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    endpoint.connect().await.expect("connect to --target")
}

/// Returns the first rows of all tablets but the first, for tablets of the same size.
fn splits(rows: u64, tablets: u64) -> Vec<admin::create_table_request::Split> {
    let first_row = |tablet: u64| key(rows * tablet / tablets);
    (1..tablets)
        .map(|tablet| admin::create_table_request::Split { key: first_row(tablet) })
        .collect()
}

async fn create_table(
    target: &str,
    parent: &str,
    name: &str,
    initial_splits: Vec<admin::create_table_request::Split>,
) {
    let mut admin = Admin::new(connect(target).await);
    let table = format!("{parent}/tables/{name}");
    let _ = admin.delete_table(admin::DeleteTableRequest { name: table }).await;
    let gc_rule = admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(1)) };
    let family = admin::ColumnFamily { gc_rule: Some(gc_rule), ..Default::default() };
    let table = admin::Table {
        column_families: [(FAMILY.to_string(), family)].into(),
        ..Default::default()
    };
    let request = admin::CreateTableRequest {
        parent: parent.into(),
        table_id: name.into(),
        table: Some(table),
        initial_splits,
    };
    admin.create_table(request).await.expect("create table");
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let flags = Flags::parse(FLAGS);
    let target = flags.text("target", "127.0.0.1:9000");
    let rows: u64 = flags.get("rows", 100_000);
    assert!(rows >= GROUP && rows.is_multiple_of(GROUP), "--rows must be a multiple of {GROUP}");
    let value_size: usize = flags.get("value-size", 1024);
    let workloads: Vec<String> = flags.list("workloads", "load,mutate,read,scan,prefix,rmw,cam");
    let connections: usize = flags.get("connections", 4);
    let name = flags.text("table", "btload");
    // Loading starts with an empty table unless --keep is given.
    if workloads.iter().any(|w| w == "load") && !flags.get("keep", false) {
        let tablets = flags.get("tablets", 1);
        assert!(tablets >= 1 && tablets <= rows, "--tablets must be from 1 to the number of rows");
        create_table(&target, PARENT, &name, splits(rows, tablets)).await;
    }
    let family = Some(flags.text("family", "")).filter(|family| !family.is_empty());
    let mut rng = Rng::new(1);
    let values = Arc::new((0..1024).map(|_| Bytes::from(rng.value(value_size))).collect());
    let mut clients = Vec::new();
    for _ in 0..connections {
        let client = Client::new(connect(&target).await);
        clients.push(client.max_decoding_message_size(256 << 20));
    }
    let cx = Context {
        table: format!("{PARENT}/tables/{name}"),
        rows,
        value_size,
        values,
        clients: Arc::new(clients),
        once: flags.get("once", false),
        reversed: flags.get("reversed", false),
        filter: latest(family.as_deref()),
        family: family.unwrap_or_else(|| FAMILY.to_string()),
    };
    let mut loaded = false;
    let workloads: Vec<String> = workloads
        .into_iter()
        .flat_map(|workload| match workload.as_str() {
            "mixed" => vec!["mixed-read".to_string(), "mixed-write".to_string()],
            _ => vec![workload],
        })
        .collect();
    for concurrency in flags.list("concurrency", "1,16,64") {
        for workload in &workloads {
            if workload == "load" && std::mem::replace(&mut loaded, true) {
                continue; // Load once, at the first concurrency.
            }
            let plan = Plan {
                concurrency,
                seconds: Some(flags.get("seconds", 5.0)),
                warmup: flags.get("warmup", 0.5),
                server_pids: flags.list("server-pid", ""),
            };
            let report = run(workload, &plan, &cx).await;
            report.print(&[
                ("bench", &"btload"),
                ("label", &flags.text("label", &target)),
                ("workload", workload),
                ("c", &concurrency),
                ("conns", &connections.min(concurrency)),
                ("rows", &rows),
                ("value_size", &value_size),
            ]);
        }
    }
}
