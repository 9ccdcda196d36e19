//! The API as JSON over HTTP: the body of a POST is a message in protobuf JSON,
//! and so is the response. A call is converted to wire format and then handled
//! like a gRPC call, so both always give the same results.

mod json;
mod objects;

use bytes::{Bytes, BytesMut};
use http::{Method as Verb, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, StreamBody};
use stele_grpc::memory::CallMemory;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Status};

use self::json::Transcoder;
use self::objects::Objects;
use super::methods::Method;
use super::results::charged;
use super::rpc::{Answer, MESSAGE_BYTES_MAX};
use super::wire::FRAME_BYTES;
use super::{Etcd, PageBody};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The path of each method.
const PATHS: &[(&str, Method)] = &[
    ("kv/range", Method::Range),
    ("kv/put", Method::Put),
    ("kv/deleterange", Method::DeleteRange),
    ("kv/txn", Method::Txn),
    ("kv/compaction", Method::Compact),
    ("watch", Method::Watch),
    ("lease/grant", Method::LeaseGrant),
    ("lease/revoke", Method::LeaseRevoke),
    ("kv/lease/revoke", Method::LeaseRevoke),
    ("lease/keepalive", Method::LeaseKeepAlive),
    ("lease/timetolive", Method::LeaseTimeToLive),
    ("kv/lease/timetolive", Method::LeaseTimeToLive),
    ("lease/leases", Method::LeaseLeases),
    ("kv/lease/leases", Method::LeaseLeases),
    ("cluster/member/list", Method::MemberList),
    ("maintenance/alarm", Method::Alarm),
    ("maintenance/status", Method::Status),
    ("maintenance/defragment", Method::Defragment),
    ("maintenance/hash", Method::Hash),
    ("maintenance/hashkv", Method::HashKv),
    ("maintenance/snapshot", Method::Snapshot),
];

/// Paths of etcd's methods that this server does not implement.
const UNSERVED: [&str; 5] = ["auth/", "lock/", "election/", "cluster/member/", "maintenance/"];

/// Returns the method of a path, which is given without `/v3/`.
pub fn method(path: &str) -> Option<Method> {
    PATHS.iter().find(|(known, _)| *known == path).map(|(_, method)| *method)
}

pub async fn call<B>(etcd: &Etcd, verb: &Verb, path: &str, body: B) -> Response<PageBody>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let Some(method) = method(path) else {
        let unserved = UNSERVED.iter().any(|prefix| path.starts_with(prefix));
        return failed(&match unserved {
            true => Status::unimplemented(format!("/v3/{path} is not supported")),
            false => Status::not_found("Not Found"),
        });
    };
    if verb != Verb::POST {
        return failed(&Status::unimplemented("Method Not Allowed"));
    }
    let answered = match method {
        Method::Watch | Method::LeaseKeepAlive => {
            let requests = Objects::new(body, Transcoder::new(method));
            etcd.stream(method, Box::pin(requests))
        }
        _ => match read(body).await {
            Ok(text) => match Transcoder::new(method).request(&text) {
                Ok(request) => etcd.unary(method, request).await,
                Err(status) => Err(status),
            },
            Err(status) => Err(status),
        },
    };
    match answered {
        Err(status) => failed(&status),
        Ok(answer) if method.answers_many() => streamed(answer, Transcoder::new(method)),
        Ok(answer) => match transcoded(answer, Transcoder::new(method)).await {
            Ok(text) => page(StatusCode::OK, text),
            Err(status) => failed(&status),
        },
    }
}

/// The maximum size of a response that is converted to JSON.
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// The memory needed to convert a response to JSON, as a multiple of its size.
const JSON_FACTOR: u64 = 8;
/// The maximum size of a message that is transcoded on the calling thread.
const TRANSCODED_IN_PLACE_MAX: usize = 64 << 10;

/// Converts a response to JSON. Large ones wait for memory.
async fn transcoded(answer: Answer, transcoder: Transcoder) -> Result<Bytes, Status> {
    let mut pieces = match answer {
        Answer::One(message) if message.len() <= TRANSCODED_IN_PLACE_MAX => {
            return Ok(transcoder.response(&message[FRAME_BYTES..])?.into());
        }
        Answer::One(message) => Box::pin(tokio_stream::once(Ok(message))),
        Answer::Many(pieces) => pieces,
    };
    let mut message = Vec::new();
    let mut share = None;
    while let Some(piece) = pieces.next().await {
        message.extend_from_slice(&piece?);
        if let Some(&[_, a, b, c, d]) = message.first_chunk::<FRAME_BYTES>()
            && share.is_none()
        {
            let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
            if bytes > RESPONSE_BYTES_MAX {
                return Err(Status::resource_exhausted(format!(
                    "a response of {bytes} bytes is too large for JSON: set a limit, or use gRPC"
                )));
            }
            let memory = CallMemory::current().responses();
            share = Some(memory.take(JSON_FACTOR * bytes as u64).await?);
        }
    }
    let share = share.ok_or_else(|| Status::internal("the response is empty"))?;
    let text = stele_grpc::offload::offload(move || transcoder.response(&message[FRAME_BYTES..]));
    Ok(charged(text.await??, share))
}

async fn read<B>(mut body: B) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| -> Status {
            let error: BoxError = error.into();
            interruption(&*error)
        })?;
        if let Some(data) = frame.data_ref() {
            text.extend_from_slice(data);
        }
        // Base64 is a third longer than the bytes it encodes.
        if text.len() > MESSAGE_BYTES_MAX / 3 * 4 {
            return Err(crate::Error::RequestTooLarge.into());
        }
    }
    Ok(text.freeze())
}

fn is_timeout(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::TimedOut
}

/// Returns why the body of a request ended early: the status with which the
/// server refused it, or that the client disconnected.
fn interruption(error: &(dyn std::error::Error + 'static)) -> Status {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(status) = error.downcast_ref::<Status>() {
            return Status::new(status.code(), status.message());
        }
        if error.downcast_ref::<std::io::Error>().is_some_and(is_timeout) {
            return Status::deadline_exceeded("the request did not arrive in time");
        }
        cause = error.source();
    }
    Status::cancelled("the client has gone away")
}

/// Writes one object per line for each message, and stops after the first
/// error.
fn streamed(answer: Answer, transcoder: Transcoder) -> Response<PageBody> {
    let messages: std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>> = match answer
    {
        Answer::One(message) => Box::pin(tokio_stream::once(Ok(message))),
        Answer::Many(messages) => messages,
    };
    let lines = messages.map(move |message| {
        let text = message.and_then(|message| transcoder.response(&message[FRAME_BYTES..]));
        let line = match text {
            Ok(text) => [b"{\"result\":", &text[..], b"}\n"].concat(),
            Err(status) => {
                format!("{{\"error\":{}}}\n", String::from_utf8_lossy(&described(&status))).into()
            }
        };
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(line)))
    });
    let mut response = Response::new(PageBody::new(StreamBody::new(lines)));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn failed(status: &Status) -> Response<PageBody> {
    page(http_status(status.code()), described(status).into())
}

/// Converts an error to a JSON object.
fn described(status: &Status) -> Vec<u8> {
    let error = serde_json::json!({ "code": status.code() as i32, "message": status.message() });
    error.to_string().into_bytes()
}

fn page(status: StatusCode, text: Bytes) -> Response<PageBody> {
    let mut response = Response::new(PageBody::new(Full::new(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Returns the HTTP status for a gRPC code.
fn http_status(code: Code) -> StatusCode {
    let number = match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    };
    StatusCode::from_u16(number).expect("numbers of statuses")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use stele_grpc::memory::CallPools;

    use super::super::proto::{KeyValue, RangeResponse};
    use super::super::wire;
    use super::*;

    fn answer(bytes: usize) -> Answer {
        let kv = KeyValue { value: vec![7; bytes].into(), ..Default::default() };
        let framed = wire::framed(&RangeResponse { kvs: vec![kv], ..Default::default() });
        // In pieces, like a large range.
        let pieces: Vec<_> =
            framed.chunks(100 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Answer::Many(Box::pin(tokio_stream::iter(pieces)))
    }

    /// Converts a range to JSON in a call whose memory is accounted.
    async fn transcoded(pools: &'static CallPools, answer: Answer) -> Result<Bytes, Status> {
        let mut memory = CallMemory::new(pools);
        let mut call = pin!(super::transcoded(answer, Transcoder::new(Method::Range)));
        std::future::poll_fn(move |context| memory.within(|| call.as_mut().poll(context))).await
    }

    #[tokio::test]
    async fn json_is_charged_to_the_memory_of_responses_before_it_is_made() {
        let pools: &'static CallPools =
            Box::leak(Box::new(CallPools::new(1 << 20, 16 << 20, Duration::ZERO)));
        let first = transcoded(pools, answer(700 << 10)).await.unwrap();
        assert!(first.len() > 700 << 10);
        assert!(pools.held().used() >= JSON_FACTOR * (700 << 10));
        let refused = transcoded(pools, answer(700 << 10)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(first);
        assert_eq!(pools.held().used(), 0);
        transcoded(pools, answer(700 << 10)).await.unwrap();
        let too_large = transcoded(pools, answer(RESPONSE_BYTES_MAX + 1)).await.unwrap_err();
        assert_eq!(too_large.code(), Code::ResourceExhausted);
        assert!(too_large.message().contains("set a limit"), "{}", too_large.message());
    }
}
