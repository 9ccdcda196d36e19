//! Counts gRPC calls: their starts and ends, messages and bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio_stream::Stream;
use tonic::{Code, Status};

use super::page::Page;
use super::{Count, Method};
use crate::etcd::Etcd;
use crate::etcd::rpc::{Answer, Messages};
use crate::etcd::wire::FRAME_BYTES;

/// The number of gRPC codes, including OK.
const CODES: usize = CODE_NAMES.len();

/// The counters of all calls.
#[derive(Default)]
pub struct Calls {
    methods: [Counts; Method::COUNT],
    received_bytes: Count,
    sent_bytes: Count,
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
        self.received_bytes.add((bytes + FRAME_BYTES) as i64);
    }

    /// Counts a sent message with its frame, or a piece of one.
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

    pub fn write(&self, page: &mut Page) {
        page.counter("etcd_network_client_grpc_received_bytes_total", self.received_bytes.get());
        page.counter("etcd_network_client_grpc_sent_bytes_total", self.sent_bytes.get());
        let each = |number: &dyn Fn(&Counts) -> i64| -> Vec<(String, i64)> {
            Method::all().map(|method| (labels(method), number(self.of(method)))).collect()
        };
        let by_kind = |many: bool| {
            let kind = Method::all().filter(|method| method.answers_many() == many);
            kind.map(|method| self.of(method).started.get()).sum::<i64>()
        };
        let requests = [("unary", by_kind(false)), ("stream", by_kind(true))]
            .map(|(kind, all)| (format!("client_api_version=\"unknown\",type=\"{kind}\""), all));
        page.labelled("etcd_server_client_requests_total", "counter", &requests);
        let mut handled = Vec::new();
        for method in Method::all() {
            for (code, count) in self.of(method).handled.iter().enumerate() {
                if code == 0 || count.get() != 0 {
                    let name = CODE_NAMES[code];
                    handled.push((format!("grpc_code=\"{name}\",{}", labels(method)), count.get()));
                }
            }
        }
        page.labelled("grpc_server_handled_total", "counter", &handled);
        for (name, number) in [
            (
                "grpc_server_started_total",
                &(|counts: &Counts| counts.started.get()) as &dyn Fn(&_) -> _,
            ),
            ("grpc_server_msg_received_total", &|counts: &Counts| counts.received.get()),
            ("grpc_server_msg_sent_total", &|counts: &Counts| counts.sent.get()),
        ] {
            page.labelled(name, "counter", &each(number));
        }
    }

    fn of(&self, method: Method) -> &Counts {
        &self.methods[method as usize]
    }
}

fn labels(method: Method) -> String {
    let (service, name) = method.names();
    let kind = match (method.asks_many(), method.answers_many()) {
        (true, _) => "bidi_stream",
        (false, true) => "server_stream",
        (false, false) => "unary",
    };
    format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

/// Counts a response as it is sent, and the end of the call.
pub fn counted(etcd: &Etcd, method: Method, answer: Answer) -> Answer {
    let calls = &etcd.counters().calls;
    match answer {
        Answer::One(message) => {
            calls.sent(method, message.len());
            calls.handled(method, Code::Ok);
            Answer::One(message)
        }
        Answer::Many(messages) => {
            let etcd = etcd.clone();
            Answer::Many(Box::pin(Sent { etcd, method, messages, code: Code::Cancelled }))
        }
    }
}

/// A stream of messages being sent.
struct Sent {
    etcd: Etcd,
    method: Method,
    messages: Messages,
    /// The code of the call if the client stops reading now.
    code: Code,
}

impl Stream for Sent {
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

impl Drop for Sent {
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
