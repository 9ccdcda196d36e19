//! A stream of watches to each server, and what was received from it.

use std::collections::BTreeMap;

use stele_metastore::etcd::proto::watch_request::RequestUnion;
use stele_metastore::etcd::proto::*;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::etcd::peer::{Peer, TIMEOUT};

/// What each watcher received, by id: events one by one, since their grouping
/// into messages is not defined.
pub type Transcript = BTreeMap<i64, Vec<String>>;

pub struct Watches {
    requests: mpsc::Sender<WatchRequest>,
    transcript: watch::Receiver<Transcript>,
}

impl Watches {
    pub async fn open(peer: &Peer) -> Watches {
        let (requests, sent) = mpsc::channel(16);
        let (sender, transcript) = watch::channel(Transcript::new());
        let peer = peer.clone();
        tokio::spawn(async move {
            // etcd sends nothing, not even headers, before the first request.
            let requests = ReceiverStream::new(sent);
            let mut answers = peer.stream("/etcdserverpb.Watch/Watch", requests).await;
            while let Ok(Some(answer)) = answers.message().await {
                sender.send_modify(|transcript| note(transcript, answer));
            }
        });
        Watches { requests, transcript }
    }

    pub async fn send(&self, request: RequestUnion) {
        let request = WatchRequest { request_union: Some(request) };
        self.requests.send(request).await.unwrap();
    }
}

fn note(transcript: &mut Transcript, answer: WatchResponse) {
    let lines = transcript.entry(answer.watch_id).or_default();
    if answer.created || answer.canceled {
        lines.push(format!(
            "created {} canceled {} compacted {} because '{}'",
            answer.created, answer.canceled, answer.compact_revision, answer.cancel_reason,
        ));
    }
    let header = answer.header.map_or(0, |header| header.revision);
    for event in answer.events {
        let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        assert!(revision <= header, "an event of {revision} under a header of {header}");
        lines.push(format!("{event:?}"));
    }
}

impl Watches {
    /// Waits until a watcher has received an event.
    pub async fn event(&mut self, id: i64, context: &str) {
        let has_event = |transcript: &Transcript| {
            transcript
                .get(&id)
                .is_some_and(|lines| lines.iter().any(|line| line.starts_with("Event")))
        };
        let waiting = self.transcript.wait_for(has_event);
        let waited = tokio::time::timeout(TIMEOUT, waiting).await;
        assert!(waited.is_ok_and(|found| found.is_ok()), "no event for watcher {id}\n{context}");
    }
}

/// Waits until both have received the same. Fails after a timeout.
pub async fn agree(ours: &mut Watches, etcds: &mut Watches, context: &str) {
    let agreeing = async {
        loop {
            if agrees(&ours.transcript.borrow_and_update(), &etcds.transcript.borrow_and_update()) {
                return;
            }
            tokio::select! {
                changed = ours.transcript.changed() => changed.expect("our stream goes on"),
                changed = etcds.transcript.changed() => changed.expect("etcd's stream goes on"),
            }
        }
    };
    if tokio::time::timeout(TIMEOUT, agreeing).await.is_err() {
        differ(&ours.transcript.borrow(), &etcds.transcript.borrow(), context);
    }
}

fn agrees(ours: &Transcript, etcds: &Transcript) -> bool {
    let none = Vec::new();
    ours.keys()
        .chain(etcds.keys())
        .all(|id| is_same_watch(ours.get(id).unwrap_or(&none), etcds.get(id).unwrap_or(&none)))
}

/// Whether two watchers received the same. A cancellation may overtake events that
/// were still to be sent, in etcd too: it sends those of a watcher that is behind
/// ten times a second.
fn is_same_watch(own: &[String], theirs: &[String]) -> bool {
    const CANCELLED: &str = "created false canceled true compacted 0 because ''";
    match (own, theirs) {
        ([own @ .., end], [theirs @ .., other_end]) if end == CANCELLED && end == other_end => {
            own.starts_with(theirs) || theirs.starts_with(own)
        }
        _ => own == theirs,
    }
}

/// Panics with the point at which two transcripts differ.
fn differ(ours: &Transcript, etcds: &Transcript, context: &str) -> ! {
    let none = Vec::new();
    for id in ours.keys().chain(etcds.keys()) {
        let (own, theirs) = (ours.get(id).unwrap_or(&none), etcds.get(id).unwrap_or(&none));
        let same = own.iter().zip(theirs).take_while(|(own, theirs)| own == theirs).count();
        if !is_same_watch(own, theirs) {
            let alike = &own[same.saturating_sub(3)..same];
            let (own, theirs) = (&own[same..], &theirs[same..]);
            panic!("watcher {id} after {alike:#?}\nours {own:#?}\netcd {theirs:#?}\n{context}");
        }
    }
    panic!("the transcripts came to agree too late\n{context}");
}
