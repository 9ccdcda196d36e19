//! Watches: every change once and in order, whenever a watcher starts and
//! however slowly it reads.

use std::time::Duration;

use bytes::Bytes;
use stele_metastore::etcd::Options;
use stele_metastore::etcd::proto::watch_request::RequestUnion;
use stele_metastore::etcd::proto::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::etcd::peer::{Peer, TIMEOUT};

/// A stream of watches.
struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watch {
    async fn open(peer: &Peer) -> Watch {
        let (requests, sent) = mpsc::channel(16);
        let answers = peer.stream("/etcdserverpb.Watch/Watch", ReceiverStream::new(sent)).await;
        Watch { requests, answers }
    }

    async fn send(&self, request: RequestUnion) {
        let request = WatchRequest { request_union: Some(request) };
        self.requests.send(request).await.unwrap();
    }

    async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send(RequestUnion::CreateRequest(request)).await;
        self.next().await
    }

    async fn next(&mut self) -> WatchResponse {
        let answer = tokio::time::timeout(TIMEOUT, self.answers.message()).await;
        answer.expect("the server sends a response").unwrap().expect("the stream goes on")
    }
}

fn of(key: &'static str, range_end: &'static str, start_revision: i64) -> WatchCreateRequest {
    let (key, range_end) = (key.into(), range_end.into());
    WatchCreateRequest { key, range_end, start_revision, ..Default::default() }
}

async fn put(peer: &Peer, key: &str, value: Bytes) -> i64 {
    let request = PutRequest { key: key.to_owned().into(), value, ..Default::default() };
    let answer: PutResponse = peer.call("/etcdserverpb.KV/Put", request).await.unwrap();
    answer.header.unwrap().revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_come_while_much_happens_miss_nothing_and_see_nothing_twice() {
    const PUTS: i64 = 400;
    let peer = Peer::ours().await;
    let writer = peer.clone();
    let writing = tokio::spawn(async move {
        for number in 0..PUTS {
            put(&writer, &format!("k/{}", number % 7), Bytes::from(vec![1; 100])).await;
        }
    });
    let mut watch = Watch::open(&peer).await;
    // Revision 2 is the first that is written; several watchers start in the
    // past.
    let starts: Vec<i64> = (0..8).map(|number| 2 + number * 40).collect();
    for start in &starts {
        watch.send(RequestUnion::CreateRequest(of("k/", "k0", *start))).await;
    }
    let last = 1 + PUTS;
    let mut next = starts.clone();
    while next.iter().any(|next| *next <= last) {
        let answer = watch.next().await;
        let next = &mut next[usize::try_from(answer.watch_id).unwrap()];
        for event in answer.events {
            let revision = event.kv.unwrap().mod_revision;
            assert_eq!(revision, *next, "watcher {}", answer.watch_id);
            assert!(answer.header.unwrap().revision >= revision);
            *next += 1;
        }
    }
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_late_receives_everything() {
    let peer = Peer::ours().await;
    let mut watch = Watch::open(&peer).await;
    assert!(watch.create(of("k", "", 0)).await.created);
    // Far more than the windows of a connection hold, while nobody reads.
    const PUTS: i64 = 60;
    for _ in 0..PUTS {
        put(&peer, "k", Bytes::from(vec![7; 300 << 10])).await;
    }
    let mut revisions = Vec::new();
    while revisions.len() < PUTS as usize {
        let answer = watch.next().await;
        revisions.extend(answer.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision));
    }
    assert_eq!(revisions, (2..2 + PUTS).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_too_large_is_sent_in_fragments_if_requested() {
    let peer = Peer::ours().await;
    for key in ["a", "b", "c"] {
        put(&peer, key, Bytes::from(vec![7; 700 << 10])).await;
    }
    // One revision whose events, with previous values, exceed 2 MiB.
    let delete =
        DeleteRangeRequest { key: "a".into(), range_end: "d".into(), ..Default::default() };
    let deleted: DeleteRangeResponse =
        peer.call("/etcdserverpb.KV/DeleteRange", delete).await.unwrap();
    let revision = deleted.header.unwrap().revision;
    let mut watch = Watch::open(&peer).await;
    let request = WatchCreateRequest { prev_kv: true, fragment: true, ..of("a", "d", revision) };
    assert!(watch.create(request).await.created);
    let (mut keys, mut pieces) = (Vec::new(), Vec::new());
    while keys.len() < 3 {
        let answer = watch.next().await;
        pieces.push(answer.fragment);
        keys.extend(answer.events.into_iter().map(|event| event.kv.unwrap().key));
    }
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(pieces, [true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_reported_when_all_watchers_are_up_to_date() {
    let peer = Peer::ours().await;
    let mut watch = Watch::open(&peer).await;
    let ask = || RequestUnion::ProgressRequest(WatchProgressRequest {});
    // Without a watcher there is no answer: the first one is that of the
    // creation.
    watch.send(ask()).await;
    assert!(watch.create(of("k", "", 0)).await.created);
    let revision = put(&peer, "k", "v".into()).await;
    watch.send(ask()).await;
    let response = watch.next().await;
    assert_eq!((response.watch_id, response.events.len()), (0, 1), "events come before progress");
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, revision));
    // A watcher that starts in the future has not received anything yet.
    assert!(watch.create(of("k", "", revision + 2)).await.created);
    watch.send(ask()).await;
    watch.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 0 })).await;
    let canceled = watch.next().await;
    assert!(canceled.canceled && canceled.watch_id == 0, "{canceled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_watchers_receive_their_progress_if_they_requested_it() {
    let progress_interval = Duration::from_millis(50);
    let peer = Peer::with(Options { progress_interval, ..Options::default() }).await;
    let mut watch = Watch::open(&peer).await;
    let revision = put(&peer, "other", "v".into()).await;
    assert!(watch.create(of("quiet", "", 0)).await.created);
    let request = WatchCreateRequest { progress_notify: true, ..of("k", "", 0) };
    assert_eq!(watch.create(request).await.watch_id, 1);
    for _ in 0..2 {
        let response = watch.next().await;
        assert_eq!((response.watch_id, response.header.unwrap().revision), (1, revision));
        assert!(response.events.is_empty() && !response.created && !response.canceled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_ended_its_requests_continues_to_watch() {
    let peer = Peer::ours().await;
    let create = RequestUnion::CreateRequest(of("k", "", 0));
    let only = tokio_stream::once(WatchRequest { request_union: Some(create) });
    let mut answers: Streaming<WatchResponse> =
        peer.stream("/etcdserverpb.Watch/Watch", only).await;
    assert!(answers.message().await.unwrap().unwrap().created);
    put(&peer, "k", "v".into()).await;
    assert_eq!(answers.message().await.unwrap().unwrap().events.len(), 1);
}
