//! One gRPC call from its headers to its last byte: counted, timed, and ended by its
//! deadline or by shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use rustls::pki_types::CertificateDer;
use stele_auth::certificate::common_name;
use stele_console::SlowCall;
use stele_grpc::memory::CallMemory;
use stele_grpc::{ResponseFuture, Services, offload, respond_now};
use stele_metastore::etcd;
use stele_metastore::etcd::CertificateName;
use stele_mounttable::identity::PeerCertificate;
use stele_mounttable::proto;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

use super::auth::{Admitted, Ended, Guard};
use super::limits::Limits;
use super::metrics::{Method, Metrics};
use super::operator;
use super::outgoing::{Outgoing, Reservation};
use super::request::RequestBody;
use super::shutdown::Phases;
use super::stream;

/// Calls that take longer are logged.
const SLOW: Duration = Duration::from_secs(1);
/// Calls that take longer are shown in the console.
const SHOWN: Duration = Duration::from_millis(100);
/// Larger frames are handed over in pieces, to detect that a slow client is still
/// reading.
const PIECE_BYTES: usize = 512 << 10;
/// Services about the server itself. Their streams are endless, as are watches.
const ABOUT_SERVER: &str = "/grpc.";
/// Like the services above, this method does no work and never blocks.
const PING: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";

/// The gRPC services as one connection calls them.
#[derive(Clone)]
pub struct Calls {
    services: Services,
    metrics: &'static Metrics,
    phases: &'static Phases,
    /// The certificate of this connection's client.
    certificate: Option<PeerCertificate>,
    /// The common name in that certificate.
    certificate_name: Option<CertificateName>,
    /// Whether this connection's client may administer the server, unless callers are
    /// checked.
    operator: bool,
    /// Decides about each call, if callers are checked.
    guard: Option<Guard>,
}

impl Calls {
    pub fn new(
        services: Services,
        metrics: &'static Metrics,
        phases: &'static Phases,
        guard: Option<Guard>,
    ) -> Calls {
        Calls {
            services,
            metrics,
            phases,
            certificate: None,
            certificate_name: None,
            operator: false,
            guard,
        }
    }

    pub fn with_peer(mut self, client: SocketAddr) -> Calls {
        self.operator |= operator::is_local(client);
        self.guard = self.guard.map(|guard| guard.with_peer(client));
        self
    }

    pub fn with_certificate(mut self, certificate: Option<CertificateDer<'static>>) -> Calls {
        self.operator |= certificate.is_some();
        let name = certificate.as_deref().and_then(common_name);
        self.certificate_name = name.map(CertificateName);
        self.guard = self.guard.map(|guard| guard.with_certificate(certificate.clone()));
        self.certificate = certificate.map(PeerCertificate);
        self
    }

    /// Begins a call, if its caller may make it.
    fn begin(&self, request: Request<Body>, record: &mut Record) -> ResponseFuture {
        let Some(guard) = &self.guard else {
            return match self.operator || !operator::is_guarded(request.uri().path()) {
                true => self.services.call(request),
                false => respond_now(operator::refusal().into_http()),
            };
        };
        match guard.admit(request) {
            Ok(Admitted { request, audited, policy_call: None }) => {
                record.audited = audited;
                self.services.call(request)
            }
            Ok(Admitted { request, audited, policy_call: Some(call) }) => {
                record.audited = audited;
                call.answer(guard.gate().clone(), request)
            }
            Err(refused) => respond_now(refused.into_http()),
        }
    }
}

impl Service<Request<Incoming>> for Calls {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Call;

    fn call(&self, request: Request<Incoming>) -> Call {
        let mut record = Record::new(self.metrics, request.uri());
        let timeout = stele_grpc::timeout(request.headers());
        let deadline = timeout.and_then(|timeout| record.started.checked_add(timeout));
        let memory = record.memory.clone();
        let mut request = request.map(|body| Body::new(RequestBody::new(body, memory)));
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        if let Some(name) = &self.certificate_name {
            request.extensions_mut().insert(name.clone());
        }
        Call {
            answer: self.begin(request, &mut record),
            limits: Limits::new(deadline, &self.phases.ending),
            record: Some(record),
        }
    }
}

pin_project! {
    /// A call until its response begins.
    pub struct Call {
        answer: ResponseFuture,
        #[pin]
        limits: Limits,
        record: Option<Record>,
    }
}

impl Future for Call {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answered = match this.record.as_mut() {
            Some(record) => record.poll(cx, |cx| this.answer.as_mut().poll(cx)),
            None => this.answer.as_mut().poll(cx).map(Ok),
        };
        let response = match answered {
            Poll::Ready(Ok(Ok(response))) => response,
            Poll::Ready(Ok(Err(never))) => match never {},
            Poll::Ready(Err(panicked)) => panicked.into_http(),
            Poll::Pending => ready!(this.limits.as_mut().poll_reached(cx)).into_http(),
        };
        let mut record = this.record.take();
        if let Some(record) = &mut record {
            record.record_response(response.headers());
            record.memory.release_turn();
        }
        let limits = this.limits.next();
        Poll::Ready(Ok(response.map(|inner| ResponseBody {
            inner: Some(inner),
            limits,
            record,
            outgoing: None,
            reservation: Reservation::default(),
            rest: Bytes::new(),
            last: None,
        })))
    }
}

pin_project! {
    /// A response body being sent.
    pub struct ResponseBody {
        // `None` after its last frame.
        #[pin]
        inner: Option<Body>,
        #[pin]
        limits: Limits,
        record: Option<Record>,
        // Large frames that have not been sent yet.
        outgoing: Option<Outgoing>,
        reservation: Reservation,
        // The part of a large frame that has not been handed over yet.
        rest: Bytes,
        // The end of the response, which follows once those frames are sent.
        last: Option<Frame<Bytes>>,
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        if !this.rest.is_empty() {
            stream::handed_over(this.limits.deadline(), true);
            return Poll::Ready(Some(Ok(Frame::data(next_piece(this.rest)))));
        }
        if this.last.is_some() {
            return poll_last(this.last, this.outgoing, cx);
        }
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let polled = match this.record.as_mut() {
            Some(record) => {
                let responses = record.metrics.memory.responses();
                match this.reservation.poll(cx, responses, this.outgoing.as_ref()) {
                    Poll::Ready(Ok(())) => record.poll(cx, |cx| inner.poll_frame(cx)),
                    Poll::Ready(Err(refused)) => Poll::Ready(Err(refused)),
                    Poll::Pending => Poll::Pending,
                }
            }
            None => inner.poll_frame(cx).map(Ok),
        };
        let frame = match polled {
            Poll::Ready(Ok(Some(Ok(frame)))) => match (frame.is_data(), this.limits.reached()) {
                (true, Some(status)) => Some(Ok(Frame::trailers(trailers(&status)))),
                _ => Some(Ok(frame)),
            },
            Poll::Ready(Ok(other)) => other,
            Poll::Ready(Err(status)) => Some(Ok(Frame::trailers(trailers(&status)))),
            Poll::Pending => {
                this.reservation.release();
                // A client that has not taken the frames already handed over still counts
                // as slow.
                if this.outgoing.as_ref().is_none_or(Outgoing::is_sent) {
                    stream::not_ready();
                }
                let status = ready!(this.limits.as_mut().poll_reached(cx));
                Some(Ok(Frame::trailers(trailers(&status))))
            }
        };
        if let (Some(record), Some(Ok(frame))) = (this.record.as_mut(), &frame) {
            record.record_sent(frame);
        }
        let deadline = this.limits.deadline();
        match frame {
            Some(Ok(frame)) if frame.is_data() => {
                let frame = match this.record.as_ref() {
                    Some(record) => {
                        let responses = record.metrics.memory.responses();
                        this.reservation.charge(frame, responses, record.awaited, this.outgoing)
                    }
                    None => frame,
                };
                // Small frames are not charged, but their stream may hold rows or a filter.
                let buffers =
                    this.record.as_ref().is_some_and(|record| record.memory.is_buffering());
                stream::handed_over(deadline, this.outgoing.is_some() || buffers);
                let frame = frame.map_data(|data| {
                    *this.rest = data;
                    next_piece(this.rest)
                });
                Poll::Ready(Some(Ok(frame)))
            }
            end => {
                this.inner.set(None);
                let finished = this.record.as_ref().is_none_or(|record| {
                    let finished = record.metrics.memory.finished_responses();
                    this.outgoing.as_ref().is_none_or(|outgoing| outgoing.try_finish(finished))
                });
                *this.record = None;
                *this.reservation = Reservation::default();
                match end {
                    Some(Ok(frame)) if !finished => {
                        *this.last = Some(frame);
                        stream::handed_over(deadline, true);
                        poll_last(this.last, this.outgoing, cx)
                    }
                    end => Poll::Ready(end),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
            && self.last.is_none()
            && self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Returns the next piece of a frame: all of it unless the frame is large.
fn next_piece(rest: &mut Bytes) -> Bytes {
    rest.split_to(rest.len().min(PIECE_BYTES))
}

/// Returns the end of a response once everything before it is sent. Until then the stream
/// stays open, so that a client that does not read is detected. Ordinary responses end
/// without this, see [`Outgoing::try_finish`].
fn poll_last(
    last: &mut Option<Frame<Bytes>>,
    outgoing: &mut Option<Outgoing>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
    if let Some(outgoing) = outgoing {
        ready!(outgoing.poll_sent(cx));
    }
    Poll::Ready(last.take().map(Ok))
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // These status messages are our own, so they are valid header values.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// The accounting of a call. Dropping it records the end of the call.
struct Record {
    metrics: &'static Metrics,
    /// The method's counters, or the path of a method that has not been called before.
    method: Result<&'static Method, Uri>,
    /// Whether shutdown waits for the call.
    awaited: bool,
    /// Whether the call may block a thread.
    may_wait: bool,
    started: Instant,
    memory: CallMemory,
    sent_bytes: u64,
    /// When the first message of the response was ready.
    first_message: Option<Instant>,
    /// The status of the call. A call that ends without one was cancelled.
    code: Option<Code>,
    /// Its record in the audit log, if it has one.
    audited: Option<Box<Ended>>,
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
            may_wait: !path.starts_with(ABOUT_SERVER) && path != PING,
            started: Instant::now(),
            memory: CallMemory::new(&metrics.memory),
            sent_bytes: 0,
            first_message: None,
            code: None,
            audited: None,
        }
    }

    /// Polls a part of the call, charging its memory to the call. A panic ends only this
    /// call. While too many calls block threads, calls that might also block are held
    /// back.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Status>> {
        if self.may_wait && offload::is_saturated() {
            ready!(offload::poll_unsaturated(cx));
        }
        let polled = self.memory.within(|| catch_unwind(AssertUnwindSafe(|| poll(cx))));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => {
                let path = self.path();
                tracing::error!(path, "a call panicked");
                Poll::Ready(Err(Status::internal("internal error: the call panicked")))
            }
        }
    }

    fn path(&self) -> &str {
        match &self.method {
            Ok(method) => &method.path,
            Err(uri) => uri.path(),
        }
    }

    /// Records the status in the response headers.
    fn record_response(&mut self, headers: &HeaderMap) {
        self.code = code(headers);
        if let Err(uri) = &self.method {
            let methods = &self.metrics.methods;
            self.method = Ok(match self.code {
                // Clients must not be able to fill the table with invented methods.
                Some(Code::Unimplemented) => methods.other(),
                _ => methods.find_or_add(uri.path()),
            });
        }
    }

    fn slow_call(&self, code: Code, took: Duration) -> SlowCall {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SlowCall {
            at_millis: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            method: self.path().to_string(),
            code: format!("{code:?}"),
            total_micros: micros(took),
            first_message_micros: self.first_message.map(|at| micros(at - self.started)),
            received_bytes: self.memory.received(),
            sent_bytes: self.sent_bytes,
        }
    }

    fn record_sent(&mut self, frame: &Frame<Bytes>) {
        match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => {
                if self.sent_bytes == 0 {
                    self.first_message = Some(Instant::now());
                }
                self.sent_bytes += data.len() as u64;
            }
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
        let received = self.memory.received();
        let method = match &self.method {
            Ok(method) => method,
            Err(_) => self.metrics.methods.other(),
        };
        method.ended(code, took, received, self.sent_bytes);
        if let Some(audited) = self.audited.take() {
            audited.write(code);
        }
        if self.awaited {
            self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        if took >= SHOWN && self.awaited {
            self.metrics.slow_calls.add(self.slow_call(code, took));
        }
        if code != Code::Ok || took >= SLOW {
            let path = self.path();
            tracing::debug!(
                target: "stele::calls",
                path, ?code, ?took, received, sent = self.sent_bytes, "call"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use stele_grpc::memory::CallPools;

    use super::*;

    #[test]
    fn a_panic_in_a_call_ends_that_call_with_internal() {
        let pools = CallPools::new(1 << 20, 1 << 20, Duration::ZERO);
        let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(pools)));
        let mut record = Record::new(metrics, &Uri::from_static("/a.B/C"));
        let mut cx = Context::from_waker(Waker::noop());
        let polled = record.poll(&mut cx, |_| -> Poll<()> { panic!("intended by the test") });
        let Poll::Ready(Err(status)) = polled else { panic!("not ended") };
        assert_eq!(status.code(), Code::Internal);
        assert!(record.poll(&mut cx, |_| Poll::Ready(())).is_ready());
    }
}
