//! Many watchers of the same keys: throughput and delay of events.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use stele_bench_wire::{Plan, Report, drive, new_hist};
use tokio::sync::watch::channel;
use tokio_stream::StreamExt;

use crate::client::pb;
use crate::{Context, done, put};

/// How long a watcher waits for an event before it gives up.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the writers' report, with the number of delivered events instead of items
/// and the delay from a put to its event instead of the put's latency.
pub async fn fan_out(plan: &Plan, cx: &Context) -> Report {
    let epoch = Instant::now();
    let (expect, expected) = channel(u64::MAX);
    let mut watchers = Vec::new();
    for number in 0..cx.watchers {
        let create = pb::WatchCreateRequest {
            key: "watch/".into(),
            range_end: "watch0".into(),
            ..Default::default()
        };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        let request = pb::WatchRequest { request_union: Some(union) };
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        let stream = cx.client(number).watch.watch(requests).await;
        let mut stream = stream.expect("a watch").into_inner();
        let created = stream.message().await.expect("a watch");
        assert!(created.is_some_and(|message| message.created));
        let mut expected = expected.clone();
        watchers.push(tokio::spawn(async move {
            let (mut seen, mut hist, mut last) = (0u64, new_hist(), Instant::now());
            while seen < *expected.borrow_and_update() {
                let message = tokio::select! {
                    message = stream.message() => message,
                    _ = expected.changed() => continue,
                    () = tokio::time::sleep(EVENT_TIMEOUT) => break,
                };
                let Ok(Some(message)) = message else { break };
                last = Instant::now();
                let now = (last - epoch).as_nanos() as u64;
                for event in message.events {
                    let value = event.kv.map(|kv| kv.value).unwrap_or_default();
                    if let Some(sent) = value.first_chunk::<8>() {
                        hist.saturating_record(now.saturating_sub(u64::from_le_bytes(*sent)));
                    }
                    seen += 1;
                }
            }
            (seen, hist, last)
        }));
    }
    let plan = Plan {
        concurrency: plan.concurrency,
        seconds: plan.seconds,
        warmup: 0.0,
        server_pids: plan.server_pids.clone(),
    };
    let started = Instant::now();
    let mut report = drive(&plan, |worker| {
        let (value, client) = (cx.value.clone(), cx.client(worker));
        let key = Bytes::from(format!("watch/{worker:06}"));
        move || {
            let (key, mut client) = (key.clone(), client.clone());
            let mut stamped = BytesMut::with_capacity(value.len());
            stamped.put_u64_le(epoch.elapsed().as_nanos() as u64);
            stamped.put_slice(&value[8..]);
            async move {
                let size = stamped.len() as u64;
                client.put(put(key, stamped.freeze())).await?;
                done(1, size)
            }
        }
    })
    .await;
    expect.send_replace(report.ops);
    report.items = 0;
    report.hist.reset();
    for watcher in watchers {
        let (seen, hist, last) = watcher.await.expect("a watcher does not panic");
        report.items += seen;
        report.errors += report.ops.saturating_sub(seen);
        report.hist.add(&hist).expect("the same bounds");
        report.secs = report.secs.max((last - started).as_secs_f64());
    }
    report
}
