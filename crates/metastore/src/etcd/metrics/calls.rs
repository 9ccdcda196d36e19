//! Counts gRPC calls: their starts and ends, messages and bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use stele_grpc::frame::PREFIX_BYTES;
use stele_metrics::{Kind, Text};
use tokio_stream::Stream;
use tonic::{Code, Status};

use super::counters::Count;
use crate::etcd::Etcd;
use crate::etcd::methods::Method;
use crate::etcd::rpc::{FramedResponse, MessageStream};

/// The number of gRPC codes, including OK.
const CODES: usize = CODE_NAMES.len();

/// The counters of all calls.
pub struct Calls {
    methods: [Counts; Method::COUNT],
    received_bytes: Count,
    sent_bytes: Count,
}

impl Default for Calls {
    fn default() -> Calls {
        let methods = std::array::from_fn(|_| Counts::default());
        Calls { methods, received_bytes: Count::default(), sent_bytes: Count::default() }
    }
}

#[derive(Default)]
struct Counts {
    started: Count,
    handled: [Count; CODES],
    received: Count,
    sent: Count,
}

impl Calls {
    pub fn started(&self, method: Method) {
        self.methods[method as usize].started.add(1);
    }

    pub fn handled(&self, method: Method, code: Code) {
        self.methods[method as usize].handled[code as usize].add(1);
    }

    /// Counts a received message of this size.
    pub fn received(&self, method: Method, bytes: usize) {
        self.methods[method as usize].received.add(1);
        self.received_bytes.add((bytes + PREFIX_BYTES) as i64);
    }

    /// Counts a sent message with its prefix, or a piece of one.
    pub fn sent(&self, method: Method, bytes: usize) {
        self.methods[method as usize].sent.add(1);
        self.sent_bytes.add(bytes as i64);
    }

    /// Returns the number of calls of these methods that ended with these
    /// codes.
    pub fn ended(&self, methods: &[Method], codes: &[Code]) -> i64 {
        let of_method = |method: &Method| {
            let handled = &self.methods[*method as usize].handled;
            codes.iter().map(|code| handled[*code as usize].get()).sum::<i64>()
        };
        methods.iter().map(of_method).sum()
    }

    /// Writes the counters to the page.
    pub fn write(&self, text: &mut Text) {
        let (received, sent) = (self.received_bytes.get(), self.sent_bytes.get());
        text.counter("etcd_network_client_grpc_received_bytes_total", "", received);
        text.counter("etcd_network_client_grpc_sent_bytes_total", "", sent);
        self.write_requests(text);
        self.write_handled(text);
        self.write_each(text, "grpc_server_started_total", |counts| &counts.started);
        self.write_each(text, "grpc_server_msg_received_total", |counts| &counts.received);
        self.write_each(text, "grpc_server_msg_sent_total", |counts| &counts.sent);
    }

    fn write_requests(&self, text: &mut Text) {
        let name = "etcd_server_client_requests_total";
        text.head(name, Kind::Counter, "");
        for (kind, streaming) in [("unary", false), ("stream", true)] {
            let methods = Method::all().filter(|method| method.is_server_streaming() == streaming);
            let started: i64 = methods.map(|method| self.of(method).started.get()).sum();
            text.sample(name, &[("client_api_version", "unknown"), ("type", kind)], started);
        }
    }

    fn write_handled(&self, text: &mut Text) {
        let name = "grpc_server_handled_total";
        text.head(name, Kind::Counter, "");
        for method in Method::all() {
            let [method_name, service, kind] = labels(method);
            for (code, count) in self.of(method).handled.iter().enumerate() {
                if code == 0 || count.get() != 0 {
                    let code = ("grpc_code", CODE_NAMES[code]);
                    text.sample(name, &[code, method_name, service, kind], count.get());
                }
            }
        }
    }

    /// Writes one counter of every method.
    fn write_each(&self, text: &mut Text, name: &str, count: impl Fn(&Counts) -> &Count) {
        text.head(name, Kind::Counter, "");
        for method in Method::all() {
            text.sample(name, &labels(method), count(self.of(method)).get());
        }
    }

    fn of(&self, method: Method) -> &Counts {
        &self.methods[method as usize]
    }
}

fn labels(method: Method) -> [(&'static str, &'static str); 3] {
    let (service, name) = method.names();
    let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
        (true, _) => "bidi_stream",
        (false, true) => "server_stream",
        (false, false) => "unary",
    };
    [("grpc_method", name), ("grpc_service", service), ("grpc_type", kind)]
}

/// Counts a response as it is sent, and the end of the call.
pub fn counted(etcd: &Etcd, method: Method, response: FramedResponse) -> FramedResponse {
    let calls = &etcd.counters().calls;
    match response {
        FramedResponse::One(message) => {
            calls.sent(method, message.len());
            calls.handled(method, Code::Ok);
            FramedResponse::One(message)
        }
        FramedResponse::Many(messages) => {
            let etcd = etcd.clone();
            let counted = CountedStream { etcd, method, messages, code: Code::Cancelled };
            FramedResponse::Many(Box::pin(counted))
        }
    }
}

/// A stream of messages being sent.
struct CountedStream {
    etcd: Etcd,
    method: Method,
    messages: MessageStream,
    /// The code of the call if the client stops reading now.
    code: Code,
}

impl Stream for CountedStream {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.messages.as_mut().poll_next(context);
        match &next {
            Poll::Ready(Some(Ok(message))) => {
                self.etcd.counters().calls.sent(self.method, message.len());
            }
            Poll::Ready(Some(Err(status))) => self.code = status.code(),
            Poll::Ready(None) => self.code = Code::Ok,
            Poll::Pending => {}
        }
        next
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.etcd.counters().calls.handled(self.method, self.code);
    }
}

const CODE_NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
