//! Streaming responses: all keys of a range, and live changes. Each is produced
//! at the pace of its client, in bounded pieces.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::proto::{ReadRequest, ReadResponse, WatchRequest, WatchResponse};
use super::{Native, convert};
use crate::auth::Access;
use crate::command::{KeyRange, RangeQuery};
use crate::error::{Error, Result};
use crate::state::Floor;
use crate::watch::{Cursor, Event, EventKind};

pub type Rows = ReceiverStream<Result<ReadResponse, Status>>;
pub type Events = ReceiverStream<Result<WatchResponse, Status>>;

/// The number of messages that are produced ahead of the client. Nothing is read for the
/// next one before it has a place.
const MESSAGES_AHEAD: usize = 1;
/// The approximate size of a message with keys.
const MESSAGE_BYTES: usize = 256 << 10;
/// The approximate size of a message with changes.
const EVENTS_BYTES: usize = 1 << 20;

impl Native {
    pub(super) async fn read(&self, request: ReadRequest) -> Result<Rows> {
        self.node.barrier().await?;
        let range = convert::key_range(request.range)?;
        self.member().permit(Access::Read(&range))?;
        let revision = self.revision_for(request.revision);
        let query = convert::query(range, revision, request.keys_only);
        let (out, rows) = mpsc::channel(MESSAGES_AHEAD);
        let native = self.clone();
        tokio::spawn(async move {
            if let Err(error) = native.send_rows(&query, revision, &out).await {
                let _ = out.send(Err(error.into())).await;
            }
        });
        Ok(ReceiverStream::new(rows))
    }

    async fn send_rows(
        &self,
        query: &RangeQuery,
        revision: i64,
        out: &mpsc::Sender<Result<ReadResponse, Status>>,
    ) -> Result<()> {
        let mut scan = self.node.reader(Floor::Retained).open(query)?;
        loop {
            let mut kvs = Vec::new();
            let end = scan.next(MESSAGE_BYTES, &mut |view| {
                kvs.push(convert::key_value(view));
            })?;
            let disconnected = out.send(Ok(ReadResponse { kvs, revision })).await.is_err();
            if end.is_some() || disconnected {
                return Ok(());
            }
        }
    }

    pub(super) async fn watch(&self, request: WatchRequest) -> Result<Events> {
        self.node.barrier().await?;
        let range = convert::key_range(request.range)?;
        self.member().permit(Access::Read(&range))?;
        let hub = self.node.watch();
        let next = if request.revision > 0 { request.revision } else { self.node.revision() + 1 };
        let waterline = self.node.waterline();
        if next < waterline {
            return Err(Error::TooOld { revision: next, waterline });
        }
        let filter = WatchFilter { range, previous: request.previous, locks: request.locks };
        let cursor = hub.cursor_retained(next);
        let (out, events) = mpsc::channel(MESSAGES_AHEAD);
        tokio::spawn(async move {
            tokio::select! {
                () = out.closed() => {}
                error = follow(cursor, filter, &out) => {
                    let _ = out.send(Err(error.into())).await;
                }
            }
        });
        Ok(ReceiverStream::new(events))
    }
}

/// What a watch reports.
struct WatchFilter {
    range: KeyRange,
    previous: bool,
    locks: bool,
}

/// Sends changes until an error ends the stream, and returns it.
async fn follow(
    mut cursor: Cursor,
    filter: WatchFilter,
    out: &mpsc::Sender<Result<WatchResponse, Status>>,
) -> Error {
    loop {
        cursor.changed().await;
        // Fails only after the stream was dropped, when this no longer runs.
        let Ok(place) = out.reserve().await else { return Error::Stopped };
        let mut taken = Vec::new();
        let next = cursor.next();
        match cursor.take_shared(&filter.range, &mut taken).await {
            Ok(()) => {}
            Err(Error::Compacted { compacted }) => {
                return Error::TooOld { revision: next, waterline: compacted };
            }
            Err(error) => return error,
        }
        drop(place);
        // Reading history may take long without finding an event.
        tokio::task::yield_now().await;
        taken.retain(|event| filter.locks || event.kind != EventKind::Lock);
        if taken.is_empty() {
            continue;
        }
        if let Err(error) = send_events(&taken, cursor.next() - 1, filter.previous, out).await {
            return error;
        }
    }
}

/// Sends events in messages of bounded size. Each message has the revision up
/// to which everything has been sent with it.
async fn send_events(
    taken: &[Event],
    revision: i64,
    previous: bool,
    out: &mpsc::Sender<Result<WatchResponse, Status>>,
) -> Result<()> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    for (at, event) in taken.iter().enumerate() {
        bytes += event.bytes();
        events.push(convert::event(event, previous)?);
        let next = taken.get(at + 1);
        if next.is_some() && bytes < EVENTS_BYTES {
            continue;
        }
        let revision = next.map_or(revision, |next| next.revision - 1);
        let response = WatchResponse { events: std::mem::take(&mut events), revision };
        out.send(Ok(response)).await.map_err(|_| Error::Stopped)?;
        bytes = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stele_engine::world::World;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::command::{Command, Put};
    use crate::native::proto::{self, key_range::Bound};
    use crate::watch::Hub;
    use crate::{Node, node};

    #[tokio::test]
    async fn streams_that_miss_the_same_history_share_its_reading() {
        const REVISIONS: i64 = 40;
        let dir = tempfile::tempdir().unwrap();
        let settings = node::NodeSettings::new(dir.path().to_path_buf(), World::real());
        let node = Node::open(node::NodeSettings { sync: false, ..settings }).await.unwrap();
        let native = Native::new(Arc::new(node));
        // There are no watchers, so all events must be read from history.
        for _ in 0..REVISIONS {
            let put = Put::new("k", vec![7; 100 << 10]);
            native.node.propose(Command::Put(put)).await.unwrap();
        }
        let hub = native.node.watch().clone();
        let mut reads = Vec::new();
        for watchers in [1, 20] {
            let mut permits = Vec::new();
            for _ in 0..Hub::history_readers_max() {
                permits.push(hub.history_permit().await);
            }
            let before = hub.history_reads();
            let mut streams = Vec::new();
            for at in 0..watchers {
                // Keys and ranges, from different revisions on.
                let bound = match at % 2 {
                    0 => Bound::Single(true),
                    _ => Bound::Prefix(true),
                };
                let range = proto::KeyRange { start: "k".into(), bound: Some(bound) };
                let first = 2 + at % 3;
                let request =
                    WatchRequest { range: Some(range), revision: first, ..Default::default() };
                streams.push((first, native.watch(request).await.unwrap()));
            }
            while hub.history_waiting() < streams.len() {
                tokio::task::yield_now().await;
            }
            assert_eq!(hub.history_reads(), before, "the streams wait for their permits");
            drop(permits);
            while streams.iter().any(|(next, _)| *next < 2 + REVISIONS) {
                for (next, stream) in &mut streams {
                    if *next == 2 + REVISIONS {
                        continue;
                    }
                    for event in stream.next().await.unwrap().unwrap().events {
                        assert_eq!(event.revision, *next);
                        *next += 1;
                    }
                }
            }
            reads.push(hub.history_reads() - before);
        }
        let readers = Hub::history_readers_max() as u64;
        assert!(reads[0] > 2, "{reads:?}");
        // There are two ranges: who reads while nobody else waits reads only its own.
        let most = readers * (2 * reads[0] + 4);
        assert!(reads[1] <= most, "{reads:?} reads for 1 and 20 watchers");
    }
}
