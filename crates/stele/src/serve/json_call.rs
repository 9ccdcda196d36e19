//! One call of the metastore's JSON gateway, under the rules of gRPC calls: it ends at
//! its deadline and on shutdown, the services know its memory, and it is counted. (As
//! with all pages, `upload` charges and times its body.)

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use stele_grpc::memory::CallMemory;
use stele_metastore::etcd;
use tokio::time::Instant;
use tonic::Code;

use super::metrics::{Method, Metrics};
use super::shutdown::Phases;

/// The counters and shutdown phases that apply to the calls.
#[derive(Clone, Copy)]
pub struct JsonCalls {
    pub metrics: &'static Metrics,
    pub phases: &'static Phases,
}

/// Serves a call of the gateway; passes other requests on.
pub async fn serve(State(calls): State<JsonCalls>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !etcd::is_gateway(path) {
        return next.run(request).await;
    }
    let endless = etcd::is_endless(path);
    let memory = CallMemory::of(request.extensions());
    let mut record = Record::new(calls.metrics, path, memory, !endless);
    let timeout = stele_grpc::timeout(request.headers());
    let deadline = timeout.and_then(|timeout| record.started.checked_add(timeout));
    let mut memory = record.memory.clone();
    let mut answering = pin!(next.run(request));
    let answering = poll_fn(|cx| memory.within(|| answering.as_mut().poll(cx)));
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let response = tokio::select! {
        response = answering => response,
        () = late => (StatusCode::GATEWAY_TIMEOUT, "the deadline of the call has passed\n").into_response(),
        () = calls.phases.ending.cancelled() => {
            (StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down\n").into_response()
        }
    };
    record.record_response(response.status());
    response.map(|inner| Body::new(CountedBody { inner, record }))
}

/// A response body being sent.
struct CountedBody {
    inner: Body,
    record: Record,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let frame = ready!(this.record.memory.within(|| Pin::new(&mut this.inner).poll_frame(cx)));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            this.record.sent += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The accounting of a call. Dropping it records the end of the call.
struct Record {
    metrics: &'static Metrics,
    method: &'static Method,
    path: String,
    /// Whether shutdown waits for the call.
    awaited: bool,
    started: Instant,
    memory: CallMemory,
    sent: u64,
    code: Code,
}

impl Record {
    fn new(metrics: &'static Metrics, path: &str, memory: CallMemory, awaited: bool) -> Record {
        if awaited {
            metrics.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        Record {
            metrics,
            method: metrics.methods.other(),
            path: path.into(),
            awaited,
            started: Instant::now(),
            memory,
            sent: 0,
            code: Code::Cancelled,
        }
    }

    fn record_response(&mut self, status: StatusCode) {
        self.memory.release_turn();
        self.code = code(status);
        // Clients must not be able to fill the table of methods with invented ones.
        let known = !matches!(self.code, Code::Unimplemented | Code::NotFound);
        let methods = &self.metrics.methods;
        self.method = match known {
            true => methods.find_or_add(&self.path),
            false => methods.find(&self.path).unwrap_or_else(|| methods.other()),
        };
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        self.method.ended(self.code, took, self.memory.received(), self.sent);
        if self.awaited {
            self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the gRPC code for the gateway's HTTP status.
fn code(status: StatusCode) -> Code {
    match status.as_u16() {
        200..300 => Code::Ok,
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        409 => Code::Aborted,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        501 => Code::Unimplemented,
        503 => Code::Unavailable,
        504 => Code::DeadlineExceeded,
        _ => Code::Internal,
    }
}
