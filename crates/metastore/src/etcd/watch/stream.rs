//! One Watch call: its requests, its watchers, and the events and progress
//! notifications that they are sent.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::Status;

use super::index::Index;
use super::lagging::Lagging;
use super::message::WatchMessage;
use super::watcher::Watcher;
use super::watchers::Watchers;
use crate::auth::Access;
use crate::command::KeyRange;
use crate::etcd::api::{Etcd, decode};
use crate::etcd::callers::Credential;
use crate::etcd::generate::{Output, generate};
use crate::etcd::proto::watch_request::RequestUnion;
use crate::etcd::proto::{WatchCancelRequest, WatchCreateRequest, WatchRequest};
use crate::etcd::rpc::MessageStream;
use crate::watch::{Cursor, Event, HistoryPermit};
use crate::{Error, Result};

/// The id of a response that is for no watcher, or for all.
const NO_ID: i64 = -1;

/// Serves a Watch call.
pub fn stream(etcd: &Etcd, credential: Credential, requests: MessageStream) -> MessageStream {
    let etcd = etcd.clone();
    generate(move |out| WatchStream::new(etcd, credential, out).run(requests))
}

type PendingPermit = Pin<Box<dyn Future<Output = HistoryPermit> + Send>>;

struct WatchStream {
    etcd: Etcd,
    credential: Credential,
    out: Output,
    /// The position of the watchers that do not lag.
    live: Cursor,
    watchers: Watchers,
    lagging: Lagging,
    /// The pending permit to read history for lagging watchers.
    permit: Option<PendingPermit>,
    /// Ids of watchers whose history has been dropped. As in etcd, these ids
    /// stay reserved until the client cancels them.
    canceled: BTreeSet<i64>,
    index: Index,
    next_id: i64,
    /// When idle watchers that requested it are notified of progress.
    progress_at: Instant,
    progress_every: Duration,
    events: Vec<Event>,
}

impl WatchStream {
    fn new(etcd: Etcd, credential: Credential, out: Output) -> WatchStream {
        let progress_every = etcd.options().progress_interval;
        etcd.counters().watch_streams.add(1);
        let live = etcd.node().watch().cursor(etcd.node().revision() + 1);
        WatchStream {
            etcd,
            credential,
            out,
            live,
            watchers: Watchers::default(),
            lagging: Lagging::default(),
            permit: None,
            canceled: BTreeSet::new(),
            index: Index::default(),
            next_id: 0,
            progress_at: Instant::now() + progress_every,
            progress_every,
            events: Vec::new(),
        }
    }

    async fn run(mut self, mut requests: MessageStream) -> Result<(), Status> {
        // After the last request, existing watchers continue.
        let mut requests_open = true;
        while requests_open || !self.watchers.is_empty() {
            let lagging = !self.lagging.is_empty();
            let (at_once, waiting) = (lagging && self.permit.is_none(), self.permit.is_some());
            tokio::select! {
                request = requests.next(), if requests_open => match request {
                    Some(message) => self.request(decode(message?)?).await?,
                    None => requests_open = false,
                },
                () = self.live.changed(), if !self.watchers.is_empty() => self.follow().await?,
                () = std::future::ready(()), if at_once => self.catch_up(None).await?,
                permit = granted(&mut self.permit), if waiting => {
                    self.permit = None;
                    self.catch_up(Some(permit)).await?;
                }
                () = tokio::time::sleep_until(self.progress_at),
                    if self.watchers.wants_progress() =>
                {
                    self.notify_progress().await;
                }
            }
        }
        Ok(())
    }

    async fn request(&mut self, request: WatchRequest) -> Result<()> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request).await,
            Some(RequestUnion::ProgressRequest(_)) => self.answer_progress_request().await?,
            None => {}
        }
        Ok(())
    }

    async fn create(&mut self, request: WatchCreateRequest) {
        let revision = self.etcd.node().revision();
        let mut created = WatchMessage::new(self.etcd.header(revision), NO_ID);
        created.created = true;
        let (start, requested_id) = (request.start_revision, request.watch_id);
        let watcher = Watcher::new(request, revision);
        let denial = match &watcher {
            Ok(watcher) => self.denial(&watcher.range).await,
            Err(_) => None,
        };
        let refusal = match watcher {
            Err(reason) => Some(reason),
            Ok(_) if denial.is_some() => denial,
            Ok(_) if requested_id != 0 && self.is_id_taken(requested_id) => {
                Some("mvcc: duplicate watch ID provided on the WatchStream".to_owned())
            }
            Ok(watcher) => {
                created.watch_id = self.add(requested_id, watcher);
                None
            }
        };
        created.canceled = refusal.is_some();
        created.cancel_reason = refusal.unwrap_or_default();
        let id = created.watch_id;
        self.out.send(created.encode(&[], i64::MAX)).await;
        let compacted = self.etcd.node().compacted();
        if id != NO_ID && start > 0 && start < compacted {
            self.cancel_compacted(id, compacted).await;
        }
    }

    /// Returns why the caller may not watch a range, in etcd's words.
    async fn denial(&mut self, range: &KeyRange) -> Option<String> {
        let caller = self.etcd.identify(&self.credential).await;
        let permitted =
            caller.and_then(|caller| self.etcd.by(caller.as_ref()).permit(Access::Read(range)));
        let error = permitted.err()?;
        Some(format!("rpc error: code = {:?} desc = {error}", error.code()))
    }

    /// Adds a watcher under the requested id, or the next free one.
    fn add(&mut self, requested_id: i64, mut watcher: Watcher) -> i64 {
        let mut id = requested_id;
        if id == 0 {
            while self.is_id_taken(self.next_id) {
                self.next_id += 1;
            }
            id = self.next_id;
            self.next_id += 1;
        }
        let hub = self.etcd.node().watch();
        if self.watchers.is_empty() {
            // There were no watchers, so nobody needs the earlier events.
            self.live = hub.cursor(self.etcd.node().revision() + 1);
            self.progress_at = Instant::now() + self.progress_every;
        }
        watcher.lagging = !self.live_covers(watcher.next);
        if watcher.lagging {
            let next = watcher.next;
            self.lagging.add(id, &watcher.range, next, || hub.cursor(next));
            self.etcd.counters().slow_watchers.add(1);
        } else {
            self.index.add(id, &watcher.range);
        }
        self.watchers.insert(id, watcher);
        self.etcd.counters().watchers.add(1);
        id
    }

    /// Returns whether the shared cursor still has all events of a watcher that
    /// starts at the revision `next`.
    fn live_covers(&self, next: i64) -> bool {
        let inside = self.live.is_inside_revision();
        next > self.live.next() || next == self.live.next() && !inside
    }

    fn is_id_taken(&self, id: i64) -> bool {
        self.watchers.contains(id) || self.canceled.contains(&id)
    }

    fn remove(&mut self, id: i64) -> bool {
        let Some(watcher) = self.watchers.remove(id) else { return false };
        if watcher.lagging {
            self.lagging.remove(id);
            self.etcd.counters().slow_watchers.add(-1);
        } else {
            self.index.remove(id, &watcher.range);
        }
        self.etcd.counters().watchers.add(-1);
        true
    }

    async fn cancel(&mut self, request: WatchCancelRequest) {
        let canceled = self.canceled.remove(&request.watch_id);
        if self.remove(request.watch_id) || canceled {
            let header = self.etcd.header(self.etcd.node().revision());
            let mut message = WatchMessage::new(header, request.watch_id);
            message.canceled = true;
            self.out.send(message.encode(&[], i64::MAX)).await;
        }
    }

    /// Cancels a watcher whose history has been dropped.
    async fn cancel_compacted(&mut self, id: i64, compacted: i64) {
        self.remove(id);
        self.canceled.insert(id);
        let mut message = WatchMessage::new(self.etcd.header(0), id);
        message.canceled = true;
        message.compact_revision = compacted;
        self.out.send(message.encode(&[], i64::MAX)).await;
    }

    /// Sends new events to the watchers that are up to date.
    async fn follow(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let index = &self.index;
        let wanted = &mut |key: &[u8]| index.is_watched(key);
        match self.live.take_with_permit(i64::MAX, wanted, &mut events).await {
            Ok(()) => {
                let revision = self.live.next() - 1;
                for (id, of_watcher) in self.index.distribute(&events) {
                    self.send(id, revision, revision, of_watcher).await;
                }
            }
            Err(Error::Compacted { compacted }) => self.skip_dropped(compacted).await,
            Err(error) => return Err(error),
        }
        events.clear();
        self.events = events;
        Ok(())
    }

    /// Moves the shared cursor up to the retained history, and cancels the
    /// watchers that still needed what was dropped.
    async fn skip_dropped(&mut self, compacted: i64) {
        let lost = |(id, watcher): (i64, &Watcher)| {
            (!watcher.lagging && watcher.next < compacted).then_some(id)
        };
        let lost: Vec<i64> = self.watchers.iter().filter_map(lost).collect();
        for id in lost {
            self.cancel_compacted(id, compacted).await;
        }
        self.live = self.etcd.node().watch().cursor(compacted);
    }

    /// Sends the next events to the group that is furthest behind. History is
    /// read in turn with other streams.
    async fn catch_up(&mut self, permit: Option<HistoryPermit>) -> Result<()> {
        if permit.is_none() && self.lagging.needs_history() {
            self.permit = Some(Box::pin(self.etcd.node().watch().history_permit()));
            return Ok(());
        }
        let Some((mut group, until)) = self.lagging.pop() else { return Ok(()) };
        let mut events = std::mem::take(&mut self.events);
        let taken = group.take(until.min(self.live.next() - 1), &mut events);
        drop(permit);
        match taken {
            Ok(()) => {
                let reached = group.cursor.next();
                let newest = self.etcd.node().revision();
                for (id, of_watcher) in group.distribute(&events) {
                    self.send(id, reached - 1, newest, of_watcher).await;
                }
                for id in group.ids() {
                    if let Some(watcher) = self.watchers.get_mut(id) {
                        watcher.next = watcher.next.max(reached);
                    }
                }
                if reached >= self.live.next() && !self.live.is_inside_revision() {
                    for (id, range) in group.into_ranges() {
                        self.watchers.caught_up(id);
                        self.index.add(id, &range);
                        self.etcd.counters().slow_watchers.add(-1);
                    }
                } else {
                    self.lagging.put_back(group);
                }
            }
            Err(Error::Compacted { compacted }) => {
                for id in group.ids() {
                    self.cancel_compacted(id, compacted).await;
                }
            }
            Err(error) => return Err(error),
        }
        events.clear();
        self.events = events;
        // History is read in this task: let other tasks run in between.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Sends a watcher the events that it wants, in a response with the revision
    /// `newest`. After this it has everything up to `revision`.
    async fn send(&mut self, id: i64, revision: i64, newest: i64, mut events: Vec<&Event>) {
        let Some(watcher) = self.watchers.get_mut(id) else { return };
        events.retain(|event| watcher.wants(event));
        watcher.next = watcher.next.max(revision + 1);
        if events.is_empty() {
            return;
        }
        watcher.sent_since_progress = true;
        // The value before an event is read at the revision before it, unless
        // that is compacted.
        let prev_after = match watcher.prev_kv {
            true => self.etcd.node().compacted(),
            false => i64::MAX,
        };
        let fragment = watcher.fragment;
        self.etcd.counters().events.add(events.len() as i64);
        let message = WatchMessage::new(self.etcd.header(newest), id);
        if !fragment {
            self.out.send(message.encode(&events, prev_after)).await;
            return;
        }
        let bytes_max = self.etcd.options().message_bytes_max();
        for piece in message.fragments(&events, prev_after, bytes_max) {
            self.out.send(piece).await;
        }
    }

    /// Returns whether every watcher has been sent everything up to this
    /// revision.
    fn is_caught_up(&self, revision: i64) -> bool {
        let caught_up =
            |(_, watcher): (i64, &Watcher)| !watcher.lagging && watcher.start <= revision + 1;
        self.live.next() > revision && self.watchers.iter().all(caught_up)
    }

    /// Answers a progress request: with one message for all watchers, if all
    /// are up to date.
    async fn answer_progress_request(&mut self) -> Result<()> {
        let revision = self.etcd.node().revision();
        if self.watchers.is_empty() {
            return Ok(());
        }
        while self.live.next() <= revision {
            self.follow().await?;
        }
        if self.is_caught_up(revision) {
            let header = self.etcd.header(self.live.next() - 1);
            self.out.send(WatchMessage::new(header, NO_ID).encode(&[], i64::MAX)).await;
        }
        Ok(())
    }

    /// Notifies idle watchers that requested it of their progress.
    async fn notify_progress(&mut self) {
        self.progress_at = Instant::now() + self.progress_every;
        let revision = self.live.next() - 1;
        let mut idle = Vec::new();
        for (id, watcher) in self.watchers.iter_mut() {
            let active = std::mem::take(&mut watcher.sent_since_progress);
            let reached = !watcher.lagging && watcher.start <= revision + 1;
            if watcher.progress_notify && !active && reached {
                idle.push(id);
            }
        }
        for id in idle {
            let message = WatchMessage::new(self.etcd.header(revision), id);
            self.out.send(message.encode(&[], i64::MAX)).await;
        }
    }
}

/// Waits for the pending permit.
async fn granted(permit: &mut Option<PendingPermit>) -> HistoryPermit {
    match permit {
        Some(permit) => permit.await,
        None => std::future::pending().await,
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let left = i64::try_from(self.watchers.len()).unwrap_or(0);
        let counters = self.etcd.counters();
        counters.watchers.add(-left);
        counters.slow_watchers.add(-i64::try_from(self.watchers.lagging()).unwrap_or(0));
        counters.watch_streams.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;
    use stele_engine::world::World;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use stele_grpc::frame::PREFIX_BYTES;

    use super::super::watchers;
    use super::*;
    use crate::command::{Command, Put};
    use crate::etcd::{Options, proto};
    use crate::watch::Hub;
    use crate::{Node, node};

    /// A stream with its requests.
    struct Call {
        requests: mpsc::UnboundedSender<Result<bytes::Bytes, Status>>,
        answers: MessageStream,
    }

    impl Call {
        fn new(etcd: &Etcd) -> Call {
            let (requests, sent) = mpsc::unbounded_channel();
            let answers =
                stream(etcd, Credential::default(), Box::pin(UnboundedReceiverStream::new(sent)));
            Call { requests, answers }
        }

        async fn create(&mut self, key: String, range_end: &'static str, start_revision: i64) {
            let (key, range_end) = (key.into(), range_end.into());
            let create =
                WatchCreateRequest { key, range_end, start_revision, ..Default::default() };
            let union = Some(RequestUnion::CreateRequest(create));
            let request = WatchRequest { request_union: union }.encode_to_vec();
            self.requests.send(Ok(request.into())).unwrap();
            assert!(self.next().await.created);
        }

        async fn next(&mut self) -> proto::WatchResponse {
            let framed = self.answers.next().await.unwrap().unwrap();
            proto::WatchResponse::decode(&framed[PREFIX_BYTES..]).unwrap()
        }
    }

    async fn opened(dir: &std::path::Path) -> Etcd {
        let settings = node::NodeSettings::new(dir.to_path_buf(), World::real());
        let node = Node::open(node::NodeSettings { sync: false, ..settings }).await.unwrap();
        Etcd::new(Arc::new(node), Options::default())
    }

    async fn put(etcd: &Etcd, key: &str, value: usize) {
        let put = Put::new(key.to_owned(), vec![7; value]);
        etcd.node().propose(Command::Put(put)).await.unwrap();
    }

    #[tokio::test]
    async fn an_event_costs_the_same_however_many_others_watch_on_the_stream() {
        let dir = tempfile::tempdir().unwrap();
        let etcd = opened(dir.path()).await;
        let mut visits = Vec::new();
        for watchers in [10, 1000] {
            let mut call = Call::new(&etcd);
            for at in 0..watchers {
                call.create(format!("{watchers}/{at}"), "", 0).await;
            }
            let before = watchers::VISITED.get();
            for _ in 0..5 {
                put(&etcd, &format!("{watchers}/7"), 1).await;
                assert_eq!(call.next().await.events.len(), 1);
            }
            visits.push(watchers::VISITED.get() - before);
        }
        assert_eq!(visits[0], visits[1], "watchers looked at");
    }

    #[tokio::test]
    async fn watchers_of_a_stream_that_miss_the_same_share_its_reading() {
        const REVISIONS: i64 = 40;
        let dir = tempfile::tempdir().unwrap();
        let etcd = opened(dir.path()).await;
        // There are no watchers, so all events must be read from history.
        for _ in 0..REVISIONS {
            put(&etcd, "k", 100 << 10).await;
        }
        let hub = etcd.node().watch().clone();
        let mut reads = Vec::new();
        for watchers in [1, 20] {
            let mut permits = Vec::new();
            for _ in 0..Hub::history_readers_max() {
                permits.push(hub.history_permit().await);
            }
            let before = hub.history_reads();
            let mut call = Call::new(&etcd);
            for at in 0..watchers {
                // Keys and ranges, from different revisions on.
                call.create("k".into(), if at % 2 == 0 { "" } else { "l" }, 2 + at % 3).await;
            }
            assert_eq!(hub.history_reads(), before, "the stream waits for its permit");
            drop(permits);
            let mut next: Vec<i64> = (0..watchers).map(|at| 2 + at % 3).collect();
            while next.iter().any(|next| *next < 2 + REVISIONS) {
                let answer = call.next().await;
                for event in answer.events {
                    let next = &mut next[usize::try_from(answer.watch_id).unwrap()];
                    assert_eq!(event.kv.unwrap().mod_revision, *next);
                    *next += 1;
                }
            }
            reads.push(hub.history_reads() - before);
        }
        assert!(reads[0] > 2, "{reads:?}");
        assert!(reads[1] <= reads[0] + 4, "{reads:?} reads for 1 and 20 watchers");
    }
}
