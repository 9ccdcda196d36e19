//! One stream of server-sent events for an open page: rates each second, what needs
//! attention when it changes, and changes of watched keys of the metastore.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stele_metastore::proto::native::{self as api, event::Change};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::answer::{Failure, put};
use crate::args::Args;
use crate::metastore::{key_json, lock_json, prefix_range};
use crate::routes::Console;

/// The maximum number of streams of a server.
pub const STREAMS_MAX: usize = 64;
/// How many events are buffered for a page that does not read.
const BUFFERED: usize = 64;
/// A page that reads nothing for so long is disconnected.
const STALL: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The sending half of a stream.
#[derive(Clone)]
struct Sender {
    send: mpsc::Sender<Bytes>,
    _permit: Arc<OwnedSemaphorePermit>,
}

/// The page is gone, or does not read.
struct Gone;

impl Sender {
    async fn event(&self, name: &str, id: Option<u64>, data: &Value) -> Result<(), Gone> {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.text(format!("{id}event: {name}\ndata: {data}\n\n")).await
    }

    async fn text(&self, text: String) -> Result<(), Gone> {
        match timeout(STALL, self.send.send(text.into())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}

/// Answers `GET events?topics=rates,watch&prefix=...`.
pub async fn stream(
    State(console): State<Console>,
    RawQuery(query): RawQuery,
    headers: axum::http::HeaderMap,
) -> Result<Response, Failure> {
    let args = Args::parse(query.as_deref(), &["topics", "prefix", "revision"])?;
    let topics = args.required("topics")?;
    let permit = console.streams.clone().try_acquire_owned().map_err(|_| {
        Failure::new(
            axum::http::StatusCode::TOO_MANY_REQUESTS,
            "busy",
            format!("{STREAMS_MAX} pages are connected already"),
        )
    })?;
    let (send, receive) = mpsc::channel(BUFFERED);
    let sender = Sender { send, _permit: Arc::new(permit) };
    for topic in topics.split(',') {
        match topic {
            "rates" => {
                let last =
                    headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
                run(&console, rates(console.clone(), sender.clone(), last));
            }
            "watch" => {
                let prefix = args.bytes("prefix").unwrap_or_default();
                let revision = args.number("revision", 0, 0, i64::MAX)?;
                let mut client = console.metastore()?;
                let request = api::WatchRequest {
                    range: Some(prefix_range(prefix)),
                    revision,
                    previous: false,
                    locks: true,
                };
                let events = client.watch(request).await?.into_inner();
                run(&console, watch(events, sender.clone()));
            }
            other => {
                return Err(Failure::invalid(format!("unknown topic {other:?}: rates or watch")));
            }
        }
    }
    let body = Body::from_stream(ReceiverStream::new(receive).map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, body).into_response())
}

/// Runs a topic until its page is gone or the server drains.
fn run(console: &Console, topic: impl Future<Output = Gone> + Send + 'static) {
    let closing = console.closing.clone();
    tokio::spawn(async move {
        closing.run_until_cancelled(topic).await;
    });
}

/// Sends the rates of each second, beginning with those that a page missed.
async fn rates(console: Console, sender: Sender, last: Option<u64>) -> Gone {
    let mut ticks = console.ticks.subscribe();
    let mut after = last.unwrap_or_else(|| *ticks.borrow_and_update());
    let mut attention = None;
    loop {
        for rates in console.history.since(after) {
            after = rates.at;
            if sender.event("rates", Some(rates.at), &json!(rates)).await.is_err() {
                return Gone;
            }
        }
        let now = console.host.attention();
        if attention.as_ref() != Some(&now) {
            if sender.event("attention", None, &json!(now)).await.is_err() {
                return Gone;
            }
            attention = Some(now);
        }
        tokio::select! {
            changed = ticks.changed() => if changed.is_err() {
                return Gone;
            },
            () = sender.send.closed() => return Gone,
        }
    }
}

async fn watch(mut events: tonic::Streaming<api::WatchResponse>, sender: Sender) -> Gone {
    loop {
        let next = tokio::select! {
            next = timeout(HEARTBEAT, events.message()) => next,
            () = sender.send.closed() => return Gone,
        };
        let sent = match next {
            Err(_) => sender.text(": still here\n\n".into()).await,
            Ok(Ok(Some(response))) => {
                let mut sent = Ok(());
                for event in &response.events {
                    sent = sender.event("watch", None, &event_json(event)).await;
                    if sent.is_err() {
                        break;
                    }
                }
                sent
            }
            Ok(Ok(None)) => return Gone,
            Ok(Err(status)) => {
                let data = json!({"error": status.message()});
                let _ = sender.event("watch-ended", None, &data).await;
                return Gone;
            }
        };
        if sent.is_err() {
            return Gone;
        }
    }
}

fn event_json(event: &api::Event) -> Value {
    let mut object = Map::new();
    put(&mut object, "key", &event.key);
    object.insert("revision".into(), json!(event.revision));
    match &event.change {
        Some(Change::Put(kv)) => object.insert("put".into(), key_json(kv)),
        Some(Change::Deleted(_)) => object.insert("deleted".into(), json!(true)),
        Some(Change::Lock(lock)) => object.insert("lock".into(), lock_json(lock)),
        None => None,
    };
    Value::Object(object)
}
