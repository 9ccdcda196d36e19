//! One gRPC call from its headers to its last byte: counted, timed, ended by
//! its deadline or by the end of the server.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use rustls::pki_types::CertificateDer;
use stele_grpc::{Answering, Services};
use stele_metastore::etcd;
use stele_mounttable::identity::ShownCertificate;
use stele_mounttable::proto;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::intake::Hold;
use super::limits::{self, Limits};
use super::metrics::{Method, Metrics};
use super::request::RequestBody;
use super::shutdown::Phases;

/// A call that takes longer is told about in the log.
const SLOW: Duration = Duration::from_secs(1);
/// Services that tell about the server; their streams have no end of their own,
/// and neither have watches.
const ABOUT_SERVER: &str = "/grpc.";

/// The gRPC services, as a connection calls them.
#[derive(Clone)]
pub struct Calls {
    services: Services,
    metrics: &'static Metrics,
    phases: &'static Phases,
    /// What the client of this connection has shown.
    certificate: Option<ShownCertificate>,
}

impl Calls {
    pub fn new(services: Services, metrics: &'static Metrics, phases: &'static Phases) -> Calls {
        Calls { services, metrics, phases, certificate: None }
    }

    pub fn shown(mut self, certificate: Option<CertificateDer<'static>>) -> Calls {
        self.certificate = certificate.map(ShownCertificate);
        self
    }
}

impl Service<Request<Incoming>> for Calls {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Call;

    fn call(&self, request: Request<Incoming>) -> Call {
        let record = Record::new(self.metrics, request.uri());
        let timeout = limits::timeout(request.headers());
        let deadline = timeout.and_then(|timeout| record.started.checked_add(timeout));
        let hold = record.hold.clone();
        let mut request = request.map(|body| tonic::body::Body::new(RequestBody::new(body, hold)));
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        Call {
            answer: self.services.call(request),
            limits: Limits::new(deadline, &self.phases.ending),
            record: Some(record),
        }
    }
}

pin_project! {
    /// A call until its response begins.
    pub struct Call {
        answer: Answering,
        #[pin]
        limits: Limits,
        record: Option<Record>,
    }
}

impl Future for Call {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let response = match this.answer.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => response,
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => ready!(this.limits.as_mut().poll_reached(cx)).into_http(),
        };
        let mut record = this.record.take();
        if let Some(record) = &mut record {
            record.answered(response.headers());
        }
        let limits = this.limits.next();
        Poll::Ready(Ok(response.map(|inner| ResponseBody { inner: Some(inner), limits, record })))
    }
}

pin_project! {
    /// The body of a response on its way out.
    pub struct ResponseBody {
        // `None` after it was ended early.
        #[pin]
        inner: Option<tonic::body::Body>,
        #[pin]
        limits: Limits,
        record: Option<Record>,
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let frame = match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match (frame.is_data(), this.limits.reached()) {
                (true, Some(status)) => Some(Ok(Frame::trailers(trailers(&status)))),
                _ => Some(Ok(frame)),
            },
            Poll::Ready(other) => other,
            Poll::Pending => {
                let status = ready!(this.limits.poll_reached(cx));
                Some(Ok(Frame::trailers(trailers(&status))))
            }
        };
        if let (Some(record), Some(Ok(frame))) = (this.record.as_mut(), &frame) {
            record.sent(frame);
        }
        if frame.as_ref().is_none_or(|frame| !frame.as_ref().is_ok_and(Frame::is_data)) {
            this.inner.set(None);
            *this.record = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // The texts of these statuses are ours, so they fit into headers.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// What is known of a call; its drop is the call's end.
struct Record {
    metrics: &'static Metrics,
    /// The method's counters, or the path of one that was not called before.
    method: Result<&'static Method, Uri>,
    /// Whether the end of the server waits for it.
    awaited: bool,
    started: Instant,
    hold: Arc<Hold>,
    sent_bytes: u64,
    /// The call was given up if it ends without a code.
    code: Option<Code>,
}

impl Record {
    fn new(metrics: &'static Metrics, uri: &Uri) -> Record {
        let path = uri.path();
        let endless = path == proto::WATCH || etcd::is_endless(path);
        let awaited = !path.starts_with(ABOUT_SERVER) && !endless;
        if awaited {
            metrics.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        Record {
            metrics,
            method: metrics.methods.find(uri.path()).ok_or_else(|| uri.clone()),
            awaited,
            started: Instant::now(),
            hold: Arc::new(Hold::new(&metrics.intake)),
            sent_bytes: 0,
            code: None,
        }
    }

    /// Looks at the head of the response.
    fn answered(&mut self, headers: &HeaderMap) {
        self.code = code(headers);
        if let Err(uri) = &self.method {
            let methods = &self.metrics.methods;
            self.method = Ok(match self.code {
                // Nothing that clients make up may fill the table.
                Some(Code::Unimplemented) => methods.other(),
                _ => methods.find_or_add(uri.path()),
            });
        }
    }

    fn sent(&mut self, frame: &Frame<Bytes>) {
        match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => self.sent_bytes += data.len() as u64,
            (_, Some(trailers)) => self.code = code(trailers),
            _ => {}
        }
    }
}

fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let code = self.code.unwrap_or(Code::Cancelled);
        let received = self.hold.received.load(Ordering::Relaxed);
        let method = match &self.method {
            Ok(method) => method,
            Err(_) => self.metrics.methods.other(),
        };
        method.ended(code, took, received, self.sent_bytes);
        if self.awaited {
            self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        if code != Code::Ok || took >= SLOW {
            let path = match &self.method {
                Ok(method) => &*method.path,
                Err(uri) => uri.path(),
            };
            tracing::debug!(
                target: "stele::calls",
                path, ?code, ?took, received, sent = self.sent_bytes, "call"
            );
        }
    }
}
