//! Load generator for an etcd v3 endpoint (plaintext, no authentication). Each workload
//! prints one line of JSON.
//!
//! `fill` loads the keys, a hundred per transaction; `put`, `get` (linearizable) and
//! `sget` (serializable) use one random key per call; `cas` swaps a key per worker;
//! `range` reads `--range-keys` keys per call; `keepalive` renews a lease over a stream
//! per worker; `watch` counts the events that `--watchers` streams receive from the
//! puts of C writers, and measures their delay; `leases` keeps `--leases` leases alive.

mod client;
mod leases;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use client::{Client, pb};
use stele_bench_wire::{Flags, Plan, Report, Rng, Step, StepResult, drive};

const FLAGS: &[&str] = &[
    "target",
    "keys",
    "value-size",
    "concurrency",
    "seconds",
    "workloads",
    "connections",
    "server-pid",
    "watchers",
    "range-keys",
    "leases",
    "label",
    "warmup",
];
const ALL: &str = "fill,put,get,sget,cas,range,keepalive,watch";
/// Keys per transaction while filling.
const FILL_BATCH: u64 = 100;

/// State shared by all workers.
#[derive(Clone)]
pub struct Context {
    clients: Arc<Vec<Client>>,
    keys: u64,
    range_keys: u64,
    value: Bytes,
    watchers: usize,
    leases: u64,
}

impl Context {
    pub fn client(&self, worker: usize) -> Client {
        self.clients[worker % self.clients.len()].clone()
    }
}

pub fn done(items: u64, bytes: u64) -> StepResult {
    Ok(Step::Done { items, bytes })
}

fn key(number: u64) -> Bytes {
    format!("bench/{number:010}").into()
}

fn range_key(number: u64) -> Bytes {
    format!("range/{number:010}").into()
}

pub fn put(key: Bytes, value: Bytes) -> pb::PutRequest {
    pb::PutRequest { key, value, ..Default::default() }
}

fn put_op(key: Bytes, value: Bytes) -> pb::RequestOp {
    let request = pb::request_op::Request::RequestPut(put(key, value));
    pb::RequestOp { request: Some(request) }
}

async fn one(workload: &str, mut client: Client, cx: &Context, rng: &mut Rng) -> StepResult {
    let size = cx.value.len() as u64;
    match workload {
        "put" => {
            client.put(put(key(rng.below(cx.keys)), cx.value.clone())).await?;
            done(1, size)
        }
        "get" | "sget" => {
            let found = client
                .range(pb::RangeRequest {
                    key: key(rng.below(cx.keys)),
                    serializable: workload == "sget",
                    ..Default::default()
                })
                .await?;
            match found.kvs.len() {
                1 => done(1, size),
                _ => Err("key not found".into()),
            }
        }
        "range" => {
            let found = client
                .range(pb::RangeRequest {
                    key: "range/".into(),
                    range_end: "range0".into(),
                    ..Default::default()
                })
                .await?;
            let keys = found.kvs.len() as u64;
            let bytes = found.kvs.iter().map(|kv| kv.value.len() as u64).sum();
            match keys == cx.range_keys {
                true => done(keys, bytes),
                false => Err(format!("the range returned {keys} keys")),
            }
        }
        other => Err(format!("unknown workload {other}: use {ALL}")),
    }
}

async fn simple(workload: &str, plan: &Plan, cx: &Context) -> Report {
    let seed = u64::from(std::process::id());
    drive(plan, |worker| {
        let (cx, client, workload) = (cx.clone(), cx.client(worker), workload.to_string());
        let mut rng = Rng::new(seed + worker as u64);
        move || {
            let (cx, client, workload) = (cx.clone(), client.clone(), workload.clone());
            let mut rng = Rng::new(rng.next_u64());
            async move { one(&workload, client, &cx, &mut rng).await }
        }
    })
    .await
}

async fn fill(plan: &Plan, cx: &Context, count: u64, name: fn(u64) -> Bytes) -> Report {
    let next = Arc::new(AtomicU64::new(0));
    let plan = until_done(plan);
    drive(&plan, |worker| {
        let (cx, next, client) = (cx.clone(), next.clone(), cx.client(worker));
        move || {
            let first = next.fetch_add(FILL_BATCH, Ordering::Relaxed);
            let (cx, mut client) = (cx.clone(), client.clone());
            async move {
                if first >= count {
                    return Ok(Step::End);
                }
                let last = (first + FILL_BATCH).min(count);
                let success = (first..last).map(|number| put_op(name(number), cx.value.clone()));
                let request = pb::TxnRequest { success: success.collect(), ..Default::default() };
                client.txn(request).await?;
                done(last - first, (last - first) * cx.value.len() as u64)
            }
        }
    })
    .await
}

/// Each worker swaps its own key, comparing with the revision of its last swap.
async fn cas(plan: &Plan, cx: &Context) -> Report {
    drive(plan, |worker| {
        let (cx, client) = (cx.clone(), cx.client(worker));
        let revision = Arc::new(AtomicI64::new(-1));
        let name = Bytes::from(format!("cas/{worker:06}"));
        move || {
            let (cx, mut client) = (cx.clone(), client.clone());
            let (name, revision) = (name.clone(), revision.clone());
            async move {
                let seen = revision.load(Ordering::Relaxed);
                let compare = pb::Compare {
                    key: name.clone(),
                    target: pb::compare::CompareTarget::Mod.into(),
                    target_union: Some(pb::compare::TargetUnion::ModRevision(seen)),
                    ..Default::default()
                };
                let swapped = client
                    .txn(pb::TxnRequest {
                        compare: if seen >= 0 { vec![compare] } else { Vec::new() },
                        success: vec![put_op(name, cx.value.clone())],
                        failure: Vec::new(),
                    })
                    .await?;
                if !swapped.succeeded {
                    revision.store(-1, Ordering::Relaxed);
                    return Err("the comparison failed".into());
                }
                let header = swapped.header.ok_or("the response has no header")?;
                revision.store(header.revision, Ordering::Relaxed);
                done(1, cx.value.len() as u64)
            }
        }
    })
    .await
}

/// Returns the same plan for work that ends on its own.
pub fn until_done(plan: &Plan) -> Plan {
    Plan {
        concurrency: plan.concurrency,
        seconds: None,
        warmup: 0.0,
        server_pids: plan.server_pids.clone(),
    }
}

async fn run(workload: &str, plan: &Plan, cx: &Context) -> Report {
    match workload {
        "fill" => fill(plan, cx, cx.keys, key).await,
        "cas" => cas(plan, cx).await,
        "keepalive" => leases::keep_alive(plan, cx).await,
        "leases" => leases::hold(plan, cx).await,
        "watch" => watch::fan_out(plan, cx).await,
        "range" => {
            fill(plan, cx, cx.range_keys, range_key).await;
            simple(workload, plan, cx).await
        }
        _ => simple(workload, plan, cx).await,
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let flags = Flags::parse(FLAGS);
    let target = flags.text("target", "127.0.0.1:2379");
    let connections: usize = flags.get("connections", 4);
    let value_size: usize = flags.get("value-size", 256);
    assert!(value_size >= 8, "--value-size must be at least 8, for a timestamp");
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(Client::connect(&target).await);
    }
    let cx = Context {
        clients: Arc::new(clients),
        keys: flags.get("keys", 100_000),
        range_keys: flags.get("range-keys", 10_000),
        value: Rng::new(1).value(value_size).into(),
        watchers: flags.get("watchers", 100),
        leases: flags.get("leases", 100_000),
    };
    let workloads: Vec<String> = flags.list("workloads", ALL);
    let mut filled = false;
    for concurrency in flags.list("concurrency", "1,16,128,512") {
        for workload in &workloads {
            // Fill once, at the first concurrency.
            if workload == "fill" && std::mem::replace(&mut filled, true) {
                continue;
            }
            let plan = Plan {
                concurrency,
                seconds: Some(flags.get("seconds", 5.0)),
                warmup: flags.get("warmup", 0.5),
                server_pids: flags.list("server-pid", ""),
            };
            run(workload, &plan, &cx).await.print(&[
                ("bench", &"meta"),
                ("label", &flags.text("label", &target)),
                ("workload", workload),
                ("c", &concurrency),
                ("conns", &connections),
                ("value_size", &value_size),
            ]);
        }
    }
}
