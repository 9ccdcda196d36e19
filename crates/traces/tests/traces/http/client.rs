//! Requests to the API without a network.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use stele_traces::http::router;
use tokio::sync::mpsc::UnboundedSender;
use tokio_stream::Stream;
use tower_service::Service;

use crate::support::Served;

pub struct Web {
    pub served: Served,
    router: Router,
}

#[derive(Debug)]
pub struct Answer {
    pub request: String,
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

impl Answer {
    /// Returns the body after checking the status.
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.request, self.body);
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("{}: {}", self.request, self.body))
    }
}

impl Web {
    pub fn new() -> Web {
        let served = Served::new();
        Web { router: router(served.client()), served }
    }

    pub async fn get(&self, page: &str) -> Answer {
        self.send("GET", page, "", String::new()).await
    }

    pub async fn post(&self, page: &str, body: Value) -> Answer {
        self.send("POST", page, "application/json", body.to_string()).await
    }

    pub async fn send(&self, method: &str, page: &str, content: &str, body: String) -> Answer {
        self.raw(method, &format!("/traces/v1{page}"), content, body.into()).await
    }

    pub async fn text(&self, page: &str) -> String {
        let answer = self.get(page).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// Sends a body of `bytes` bytes, generated while it is sent.
    pub async fn giant(&self, page: &str, bytes: usize) -> Answer {
        const PIECE: usize = 1 << 20;
        let pieces = (0..bytes / PIECE).map(|_| Ok::<_, std::io::Error>(vec![b' '; PIECE]));
        let body = Body::from_stream(tokio_stream::iter(pieces));
        self.raw("POST", &format!("/traces/v1{page}"), "application/json", body).await
    }

    /// Sends a body that stalls after its first byte, and notifies `stopped` then.
    pub async fn slow(&self, page: &str, stopped: UnboundedSender<()>) -> Answer {
        let body = Body::from_stream(Stopping { first: Some("{"), stopped: Some(stopped) });
        self.raw("POST", &format!("/traces/v1{page}"), "application/json", body).await
    }

    pub async fn raw(&self, method: &str, uri: &str, content: &str, body: Body) -> Answer {
        let request = Request::builder().method(method).uri(uri).header("content-type", content);
        let request = request.body(body).unwrap();
        let line = format!("{method} {uri}");
        let response = self.router.clone().call(request).await.unwrap();
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type = content_type.map_or("", |value| value.to_str().unwrap()).to_string();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { request: line, status, content_type, body }
    }
}

/// A stream of one piece that never ends.
struct Stopping {
    first: Option<&'static str>,
    stopped: Option<UnboundedSender<()>>,
}

impl Stream for Stopping {
    type Item = std::io::Result<&'static str>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(stopped) = self.stopped.take() {
            let _ = stopped.send(());
        }
        Poll::Pending
    }
}
