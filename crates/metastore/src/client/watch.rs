//! A stream of all changes of a range, in order. After a lost connection the
//! watch resumes at its position.

use std::collections::VecDeque;
use std::time::Duration;

use tonic::Streaming;

use super::{Client, Error, Event, Range, Result};
use crate::proto::native::{WatchRequest, WatchResponse};

/// The pause between reconnects, and the maximum number in a row.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const RECONNECTS_MAX: u32 = 50;

/// A watch of a range and its locks.
pub struct Watch {
    client: Client,
    range: Range,
    stream: Streaming<WatchResponse>,
    /// The first revision that has not been received completely.
    next: i64,
    /// The number of events of revision `next` that were received, when it
    /// arrives in pieces.
    received: usize,
    /// The number of events of revision `next` that were received before the
    /// connection was lost, and will be received again.
    skipped: usize,
    ready: VecDeque<Event>,
    failures: u32,
}

impl Watch {
    pub(super) async fn open(client: Client, range: Range, revision: i64) -> Result<Watch> {
        // Resolve now, so that it means the same after a lost connection.
        let next = match revision {
            0 => client.snapshot(super::At::Newest).await? + 1,
            revision => revision,
        };
        let stream = open_stream(&client, &range, next).await?;
        Ok(Watch {
            client,
            range,
            stream,
            next,
            received: 0,
            skipped: 0,
            ready: VecDeque::new(),
            failures: 0,
        })
    }

    /// Returns the first revision whose events have not all been returned.
    pub fn next_revision(&self) -> i64 {
        self.ready.front().map_or(self.next, |event| event.revision)
    }

    /// Returns the next event. Fails only with an error that a retry cannot
    /// fix.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match self.stream.message().await {
                Ok(Some(response)) => {
                    self.failures = 0;
                    self.take(response);
                }
                Ok(None) => self.resume(Error::Unknown("the watch ended".to_string())).await?,
                Err(status) => self.resume(status.into()).await?,
            }
        }
    }

    fn take(&mut self, response: WatchResponse) {
        let next = response.revision + 1;
        let events_of_next = response.events.iter().filter(|event| event.revision == next).count();
        for event in response.events {
            if self.skipped > 0 && event.revision == self.next {
                self.skipped -= 1;
            } else {
                self.ready.push_back(event);
            }
        }
        if next > self.next {
            (self.next, self.received, self.skipped) = (next, 0, 0);
        }
        self.received += events_of_next;
    }

    async fn resume(&mut self, mut error: Error) -> Result<()> {
        loop {
            let disconnected = matches!(error, Error::Unknown(_) | Error::Unreachable { .. });
            if !disconnected || self.failures >= RECONNECTS_MAX {
                return Err(error);
            }
            self.failures += 1;
            tokio::time::sleep(RECONNECT_PAUSE).await;
            match open_stream(&self.client, &self.range, self.next).await {
                Ok(stream) => {
                    self.stream = stream;
                    // Some of the events to skip may not have been received
                    // again.
                    self.skipped += self.received;
                    self.received = 0;
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }
}

async fn open_stream(
    client: &Client,
    range: &Range,
    revision: i64,
) -> Result<Streaming<WatchResponse>> {
    let range = Some(range.clone().into());
    let request = WatchRequest { range, revision, previous: true, locks: true };
    Ok(client.api().watch(request).await?.into_inner())
}
