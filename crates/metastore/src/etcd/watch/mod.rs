//! The Watch service. A stream carries many watchers. Those that are up to
//! date follow one cursor, so that an event is looked at once however many
//! there are (`index`); one that asked for history has a cursor of its own
//! until it has caught up. A client that reads slowly costs a place in the
//! stream of changes, not a queue: what it has not taken is read again from
//! the ring, or from the store when the ring has moved on.

mod index;
mod message;
mod ranges;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::Status;

use self::index::Index;
use self::message::WatchMessage;
use self::watcher::Watcher;
use super::generate::{Out, generate};
use super::proto::watch_request::RequestUnion;
use super::proto::{WatchCancelRequest, WatchCreateRequest, WatchRequest};
use super::rpc::Messages;
use super::{Etcd, decode};
use crate::watch::{Cursor, Event};
use crate::{Error, Result};

/// The id of an answer that is for no watcher, or for all.
const NO_ID: i64 = -1;

pub fn stream(etcd: &Etcd, requests: Messages) -> Messages {
    let etcd = etcd.clone();
    generate(move |out| WatchStream::new(etcd, out).run(requests))
}

struct WatchStream {
    etcd: Etcd,
    out: Out,
    /// Where those watchers are that do not lag.
    live: Cursor,
    watchers: BTreeMap<i64, Watcher>,
    /// Ids of watchers that needed history which is gone. As with etcd they are
    /// taken until the client cancels them.
    ended: BTreeSet<i64>,
    index: Index,
    next_id: i64,
    /// How many watchers lag, and how many want to be told of progress.
    lagging: i64,
    progress_wanted: usize,
    /// When watchers that asked for it are told that nothing has happened.
    progress_at: Instant,
    progress_every: Duration,
    events: Vec<Event>,
}

impl WatchStream {
    fn new(etcd: Etcd, out: Out) -> WatchStream {
        let progress_every = etcd.options().progress_interval;
        etcd.counters().watch_streams.add(1);
        let live = etcd.node().watch().cursor(etcd.node().revision() + 1);
        WatchStream {
            etcd,
            out,
            live,
            watchers: BTreeMap::new(),
            ended: BTreeSet::new(),
            index: Index::default(),
            next_id: 0,
            lagging: 0,
            progress_wanted: 0,
            progress_at: Instant::now() + progress_every,
            progress_every,
            events: Vec::new(),
        }
    }

    async fn run(mut self, mut requests: Messages) -> Result<(), Status> {
        // A client that has said all it wants goes on watching.
        let mut asking = true;
        loop {
            let lagging = self.lagging > 0;
            tokio::select! {
                request = requests.next(), if asking => match request {
                    Some(message) => self.request(decode(message?)?).await?,
                    None => asking = false,
                },
                () = self.live.changed(), if !self.watchers.is_empty() => self.follow().await?,
                () = std::future::ready(()), if lagging => self.catch_up().await?,
                () = tokio::time::sleep_until(self.progress_at), if self.progress_wanted > 0 => {
                    self.notify_progress().await;
                }
            }
        }
    }

    fn add_lagging(&mut self, by: i64) {
        self.lagging += by;
        self.etcd.counters().slow_watchers.add(by);
    }

    async fn request(&mut self, request: WatchRequest) -> Result<()> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request).await,
            Some(RequestUnion::ProgressRequest(_)) => self.tell_progress().await?,
            None => {}
        }
        Ok(())
    }

    async fn create(&mut self, request: WatchCreateRequest) {
        let revision = self.etcd.node().revision();
        let mut created = WatchMessage::new(self.etcd.header(revision), NO_ID);
        created.created = true;
        let (start, asked) = (request.start_revision, request.watch_id);
        let refusal = match Watcher::new(request, revision) {
            Err(reason) => Some(reason),
            Ok(_) if asked != 0 && self.is_taken(asked) => {
                Some("mvcc: duplicate watch ID provided on the WatchStream".to_owned())
            }
            Ok(watcher) => {
                created.watch_id = self.add(asked, watcher);
                None
            }
        };
        created.canceled = refusal.is_some();
        created.cancel_reason = refusal.unwrap_or_default();
        let id = created.watch_id;
        self.out.send(created.encode(&[], false)).await;
        let compacted = self.etcd.node().compacted();
        if id != NO_ID && start > 0 && start < compacted {
            self.cancel_compacted(id, compacted).await;
        }
    }

    /// Adds a watcher under the id asked for, or the next that is free.
    fn add(&mut self, asked: i64, mut watcher: Watcher) -> i64 {
        let mut id = asked;
        if id == 0 {
            while self.is_taken(self.next_id) {
                self.next_id += 1;
            }
            id = self.next_id;
            self.next_id += 1;
        }
        let hub = self.etcd.node().watch();
        if self.watchers.is_empty() {
            // Nobody followed: what happened meanwhile is nobody's.
            self.live = hub.cursor(self.etcd.node().revision() + 1);
            self.progress_at = Instant::now() + self.progress_every;
        }
        if !self.is_behind_live(watcher.next) {
            watcher.lagging = Some(hub.cursor(watcher.next));
            self.add_lagging(1);
        } else {
            self.index.add(id, &watcher.range);
        }
        self.progress_wanted += usize::from(watcher.progress_notify);
        self.watchers.insert(id, watcher);
        self.etcd.counters().watchers.add(1);
        id
    }

    /// Whether a watcher that wants events from a revision on gets them all from
    /// the cursor that the watchers share.
    fn is_behind_live(&self, next: i64) -> bool {
        let inside = self.live.is_inside_revision();
        next > self.live.next() || next == self.live.next() && !inside
    }

    fn is_taken(&self, id: i64) -> bool {
        self.watchers.contains_key(&id) || self.ended.contains(&id)
    }

    fn remove(&mut self, id: i64) -> bool {
        let Some(watcher) = self.watchers.remove(&id) else { return false };
        self.index.remove(id, &watcher.range);
        self.progress_wanted -= usize::from(watcher.progress_notify);
        if watcher.lagging.is_some() {
            self.add_lagging(-1);
        }
        self.etcd.counters().watchers.add(-1);
        true
    }

    async fn cancel(&mut self, request: WatchCancelRequest) {
        let ended = self.ended.remove(&request.watch_id);
        if self.remove(request.watch_id) || ended {
            let header = self.etcd.header(self.etcd.node().revision());
            let mut message = WatchMessage::new(header, request.watch_id);
            message.canceled = true;
            self.out.send(message.encode(&[], false)).await;
        }
    }

    /// Ends a watcher that needs history which is gone.
    async fn cancel_compacted(&mut self, id: i64, compacted: i64) {
        self.remove(id);
        self.ended.insert(id);
        let mut message = WatchMessage::new(self.etcd.header(0), id);
        message.canceled = true;
        message.compact_revision = compacted;
        self.out.send(message.encode(&[], false)).await;
    }

    /// Brings what has happened to those who follow.
    async fn follow(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let index = &self.index;
        let taken = self.live.take(i64::MAX, &mut |key| index.is_watched(key), &mut events);
        match taken {
            Ok(()) => {
                let revision = self.live.next() - 1;
                for (id, of_watcher) in self.index.distribute(&events) {
                    self.send(id, revision, of_watcher).await;
                }
            }
            Err(Error::Compacted { compacted }) => self.fall_behind(compacted).await,
            Err(error) => return Err(error),
        }
        events.clear();
        self.events = events;
        Ok(())
    }

    /// Those who follow need history that is gone.
    async fn fall_behind(&mut self, compacted: i64) {
        let lost = |(id, watcher): (&i64, &Watcher)| {
            (watcher.lagging.is_none() && watcher.next < compacted).then_some(*id)
        };
        let lost: Vec<i64> = self.watchers.iter().filter_map(lost).collect();
        for id in lost {
            self.cancel_compacted(id, compacted).await;
        }
        self.live = self.etcd.node().watch().cursor(compacted);
    }

    /// Brings a stretch of history to each watcher that lags.
    async fn catch_up(&mut self) -> Result<()> {
        let lagging = |(id, watcher): (&i64, &Watcher)| watcher.lagging.is_some().then_some(*id);
        let ids: Vec<i64> = self.watchers.iter().filter_map(lagging).collect();
        for id in ids {
            let Some(watcher) = self.watchers.get_mut(&id) else { continue };
            let Some(cursor) = &mut watcher.lagging else { continue };
            let mut events = std::mem::take(&mut self.events);
            let range = &watcher.range;
            let until = self.live.next() - 1;
            match cursor.take(until, &mut |key| range.contains(key), &mut events) {
                Ok(()) => {
                    let reached = cursor.next();
                    let caught_up = reached >= self.live.next();
                    if caught_up && !self.live.is_inside_revision() {
                        watcher.lagging = None;
                        self.index.add(id, &watcher.range);
                        self.add_lagging(-1);
                    }
                    let all: Vec<&Event> = events.iter().collect();
                    self.send(id, reached - 1, all).await;
                    if let Some(watcher) = self.watchers.get_mut(&id) {
                        watcher.next = watcher.next.max(reached);
                    }
                }
                Err(Error::Compacted { compacted }) => self.cancel_compacted(id, compacted).await,
                Err(error) => return Err(error),
            }
            events.clear();
            self.events = events;
            // History is read in this task: others have their turn in between.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Sends a watcher those events that it wants. All up to `revision` has
    /// then been told.
    async fn send(&mut self, id: i64, revision: i64, mut events: Vec<&Event>) {
        let Some(watcher) = self.watchers.get_mut(&id) else { return };
        events.retain(|event| watcher.wants(event));
        watcher.next = watcher.next.max(revision + 1);
        if events.is_empty() {
            return;
        }
        watcher.told = true;
        let (prev_kv, fragment) = (watcher.prev_kv, watcher.fragment);
        self.etcd.counters().events.add(events.len() as i64);
        let message = WatchMessage::new(self.etcd.header(revision), id);
        if !fragment {
            self.out.send(message.encode(&events, prev_kv)).await;
            return;
        }
        for piece in message.fragments(&events, prev_kv) {
            self.out.send(piece).await;
        }
    }

    /// Whether every watcher has been told all up to this revision.
    fn is_told(&self, revision: i64) -> bool {
        let told = |watcher: &Watcher| watcher.lagging.is_none() && watcher.start <= revision + 1;
        self.live.next() > revision && self.watchers.values().all(told)
    }

    /// Answers a client that asks how far its watchers are: with one message
    /// for all, if all are up to date.
    async fn tell_progress(&mut self) -> Result<()> {
        let revision = self.etcd.node().revision();
        if self.watchers.is_empty() {
            return Ok(());
        }
        while self.live.next() <= revision {
            self.follow().await?;
        }
        if self.is_told(revision) {
            let header = self.etcd.header(self.live.next() - 1);
            self.out.send(WatchMessage::new(header, NO_ID).encode(&[], false)).await;
        }
        Ok(())
    }

    /// Tells idle watchers that asked for it how far they are.
    async fn notify_progress(&mut self) {
        self.progress_at = Instant::now() + self.progress_every;
        let revision = self.live.next() - 1;
        let mut idle = Vec::new();
        for (id, watcher) in &mut self.watchers {
            let told = std::mem::take(&mut watcher.told);
            let reached = watcher.lagging.is_none() && watcher.start <= revision + 1;
            if watcher.progress_notify && !told && reached {
                idle.push(*id);
            }
        }
        for id in idle {
            let message = WatchMessage::new(self.etcd.header(revision), id);
            self.out.send(message.encode(&[], false)).await;
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let left = i64::try_from(self.watchers.len()).unwrap_or(0);
        let counters = self.etcd.counters();
        counters.watchers.add(-left);
        counters.slow_watchers.add(-self.lagging);
        counters.watch_streams.add(-1);
    }
}
