//! Changes of a key, in order. A watch that was interrupted continues after the last
//! revision that it has seen, at any server.

use std::sync::Arc;
use std::time::Duration;

use stele_grpc::backoff;
use stele_tables::coordinate::{Changed, OnChange, Op, Transaction, Watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::{Request, Status};

use super::{Shared, is_of_server, proto};
use proto::mvccpb::event::EventType;
use proto::watch_request::RequestUnion;

/// Pauses between two attempts.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(2);

/// A watch that runs until it is dropped.
pub(super) struct Following(JoinHandle<()>);

impl Following {
    pub(super) fn new(task: JoinHandle<()>) -> Following {
        Following(task)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watch for Following {}

/// Reports the changes of a key after a revision, for ever.
pub(super) async fn follow(shared: Arc<Shared>, key: Vec<u8>, after: i64, each: OnChange) {
    let mut follower = Follower { shared, key, seen: after, each };
    let mut failures = 0;
    loop {
        let before = follower.seen;
        let (number, outcome) = follower.run().await;
        if let Err(status) = outcome {
            tracing::debug!(error = status.message(), "a watch of the coordinator is interrupted");
            if is_of_server(&status) {
                follower.shared.endpoints.failed(number);
            }
        }
        failures = if follower.seen > before { 0 } else { failures + 1 };
        tokio::time::sleep(backoff::delay(RETRY_FIRST, RETRY_LONGEST, failures)).await;
    }
}

struct Follower {
    shared: Arc<Shared>,
    key: Vec<u8>,
    /// The newest revision whose change of the key was reported.
    seen: i64,
    each: OnChange,
}

impl Follower {
    /// Watches until the connection fails. Returns the server that was in use.
    async fn run(&mut self) -> (usize, Result<(), Status>) {
        let (number, transport) = self.shared.endpoints.current();
        let create = proto::WatchCreateRequest {
            key: self.shared.namespace.key(&self.key),
            start_revision: self.seen.saturating_add(1),
            ..Default::default()
        };
        let create =
            proto::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // The stream of requests stays open: its end would end the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut request = Request::new(requests);
        // A server that is cut off from the others ends the watch instead of being silent.
        request.metadata_mut().insert("hasleader", "true".parse().expect("it is a value"));
        let mut client = proto::watch_client::WatchClient::new(transport);
        let mut responses = match client.watch(request).await {
            Ok(responses) => responses.into_inner(),
            Err(status) => return (number, Err(status)),
        };
        loop {
            match responses.message().await {
                Ok(Some(response)) if response.compact_revision > 0 => {
                    return (number, self.catch_up().await);
                }
                Ok(Some(response)) if response.canceled => {
                    return (number, Err(Status::unavailable(response.cancel_reason)));
                }
                Ok(Some(response)) => self.report(response),
                Ok(None) => return (number, Err(Status::unavailable("the watch has ended"))),
                Err(status) => return (number, Err(status)),
            }
        }
    }

    fn report(&mut self, response: proto::WatchResponse) {
        for event in response.events {
            let is_put = event.r#type() == EventType::Put;
            let Some(kv) = event.kv else { continue };
            if kv.mod_revision <= self.seen {
                continue;
            }
            self.seen = kv.mod_revision;
            let value = is_put.then(|| self.shared.namespace.found(kv));
            (self.each)(Changed { key: self.key.clone(), value });
        }
    }

    /// Reads the key, because the history after the last change that was seen is gone.
    async fn catch_up(&mut self) -> Result<(), Status> {
        let then = vec![Op::Get(self.key.clone())];
        let get = Transaction { then, ..Transaction::default() };
        let read = self.shared.transact(&get).await;
        let mut read = read.map_err(|error| Status::unavailable(error.0))?;
        let value = read.found.pop();
        if value.as_ref().is_none_or(|value| value.modified > self.seen) {
            (self.each)(Changed { key: self.key.clone(), value });
        }
        self.seen = self.seen.max(read.revision);
        Ok(())
    }
}
