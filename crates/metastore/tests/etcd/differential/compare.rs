//! Random requests, compared one by one.

use bytes::Bytes;
use stele_metastore::etcd::proto::watch_request::RequestUnion;
use stele_metastore::etcd::proto::{PutRequest, WatchCancelRequest, WatchCreateRequest};

use super::answers;
use super::draw::{Draw, Step};
use super::watches::{Watches, agree};
use crate::etcd::peer::{self, Peer};

/// The number of seeds, and of requests per seed: more with `STELE_LONG`.
fn extent() -> (u64, usize) {
    if std::env::var_os("STELE_LONG").is_some() { (20, 3000) } else { (2, 600) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_answered_as_etcd_answers_them() {
    let Some(binary) = peer::etcd_binary() else {
        eprintln!("skipped: there is no etcd (put one on the path, or name it in STELE_ETCD)");
        return;
    };
    let (seeds, steps) = extent();
    let first = std::env::var("STELE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        compare(&Peer::ours().await, &Peer::etcd(&binary).await, seed, steps).await;
    }
}

async fn compare(ours: &Peer, etcd: &Peer, seed: u64, steps: usize) {
    let mut pair = Pair {
        our_watches: Watches::open(ours).await,
        etcd_watches: Watches::open(etcd).await,
        ours,
        etcd,
        revision: 1,
        settled: 0,
    };
    let mut draw = Draw(seed);
    let mut history: Vec<String> = Vec::new();
    for number in 0..steps {
        let step = draw.step(pair.revision);
        history.push(format!("{number}: {step:?}"));
        let recent = history[history.len().saturating_sub(12)..].join("\n");
        let context = format!("seed {seed}, the last steps:\n{recent}");
        match &step {
            Step::Watch(request) => {
                pair.watch(RequestUnion::CreateRequest(request.clone())).await;
            }
            Step::CancelWatch(watch_id) => {
                // Wait for events in flight before cancelling.
                pair.settle(&context).await;
                let watch_id = *watch_id;
                pair.watch(RequestUnion::CancelRequest(WatchCancelRequest { watch_id })).await;
            }
            Step::Compact(_) => {
                pair.settle(&context).await;
                pair.step(&step, &context).await;
            }
            _ => pair.step(&step, &context).await,
        }
    }
    pair.settle(&format!("seed {seed}, at the end")).await;
}

/// Both servers, and a stream of watches to each.
struct Pair<'a> {
    ours: &'a Peer,
    etcd: &'a Peer,
    our_watches: Watches,
    etcd_watches: Watches,
    revision: i64,
    settled: i64,
}

impl Pair<'_> {
    async fn step(&mut self, step: &Step, context: &str) {
        let theirs = answers::answer(self.etcd, step).await;
        let own = answers::answer(self.ours, step).await;
        assert!(own == theirs, "ours {own}\netcd {theirs}\n{context}");
        self.revision = revision_of(&own).unwrap_or(self.revision);
    }

    async fn watch(&mut self, request: RequestUnion) {
        self.our_watches.send(request.clone()).await;
        self.etcd_watches.send(request).await;
    }

    /// Waits until all events have arrived: a watcher that is created last and
    /// requests the newest change receives it last.
    async fn settle(&mut self, context: &str) {
        let key = Bytes::from_static(b"settled");
        let put = PutRequest { key: key.clone(), ..Default::default() };
        self.step(&Step::Put(put), context).await;
        self.settled += 1;
        let watch_id = SETTLING_IDS + self.settled;
        let request = WatchCreateRequest {
            key,
            start_revision: self.revision,
            watch_id,
            ..Default::default()
        };
        self.watch(RequestUnion::CreateRequest(request)).await;
        self.our_watches.event(watch_id, context).await;
        self.etcd_watches.event(watch_id, context).await;
        self.watch(RequestUnion::CancelRequest(WatchCancelRequest { watch_id })).await;
        agree(&mut self.our_watches, &mut self.etcd_watches, context).await;
    }
}

/// The ids of watchers that are created only to wait are above this.
const SETTLING_IDS: i64 = 1_000_000;

/// Parses the revision of the header from the text of an answer.
fn revision_of(answer: &str) -> Option<i64> {
    let (_, rest) = answer.split_once("revision: ")?;
    rest.split(',').next()?.parse().ok()
}
