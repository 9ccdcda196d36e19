//! Changes of a range, in order, none left out: after a connection is lost the
//! watch goes on where it was.

use std::collections::VecDeque;
use std::time::Duration;

use tonic::Streaming;

use super::{Client, Error, Event, Range, Result};
use crate::native::proto::{WatchRequest, WatchResponse};

/// How long to wait before asking again, and how often in a row.
const PAUSE: Duration = Duration::from_millis(100);
const RETRIES_MAX: u32 = 50;

pub struct Watch {
    client: Client,
    range: Range,
    stream: Streaming<WatchResponse>,
    /// The first revision that was not told.
    next: i64,
    /// Events of revision `next` that were received, when it came in pieces.
    received: usize,
    /// Events of revision `next` that were received before the connection was
    /// lost, and come again.
    skipped: usize,
    ready: VecDeque<Event>,
    failures: u32,
}

impl Watch {
    pub(super) async fn open(client: Client, range: Range, revision: i64) -> Result<Watch> {
        // From now on must mean the same after a lost connection.
        let next = match revision {
            0 => client.snapshot(super::At::Newest).await? + 1,
            revision => revision,
        };
        let stream = ask(&client, &range, next).await?;
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

    /// The first revision whose events have not all been given.
    pub fn next_revision(&self) -> i64 {
        self.ready.front().map_or(self.next, |event| event.revision)
    }

    /// The next event. Ends only with an error that trying again cannot mend.
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
        let of_next = response.events.iter().filter(|event| event.revision == next).count();
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
        self.received += of_next;
    }

    async fn resume(&mut self, mut error: Error) -> Result<()> {
        loop {
            let lost = matches!(error, Error::Unknown(_) | Error::Unreachable { .. });
            if !lost || self.failures >= RETRIES_MAX {
                return Err(error);
            }
            self.failures += 1;
            tokio::time::sleep(PAUSE).await;
            match ask(&self.client, &self.range, self.next).await {
                Ok(stream) => {
                    self.stream = stream;
                    // Of what was to be skipped some may not have come again.
                    self.skipped += self.received;
                    self.received = 0;
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }
}

async fn ask(client: &Client, range: &Range, revision: i64) -> Result<Streaming<WatchResponse>> {
    let range = Some(range.clone().into());
    let request = WatchRequest { range, revision, previous: true, locks: true };
    Ok(client.api().watch(request).await?.into_inner())
}
