//! One call of the gateway: reads the request, executes the method and converts
//! the response.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method as Verb, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, StreamBody};
use stele_grpc::frame::{PREFIX_BYTES, Prefix};
use stele_grpc::memory::CallMemory;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use super::BoxError;
use super::json::Transcoder;
use super::objects::Objects;
use super::paths::method;
use crate::etcd::callers::Credential;
use crate::etcd::methods::Method;
use crate::etcd::results::charged;
use crate::etcd::rpc::{FramedResponse, MessageStream};
use crate::etcd::{Etcd, PageBody, pages};

pub async fn call<B>(
    etcd: &Etcd,
    verb: &Verb,
    path: &str,
    headers: &HeaderMap,
    body: B,
) -> Response<PageBody>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let Some(method) = method(path) else {
        return failed(&Status::not_found("Not Found"));
    };
    if verb != Verb::POST {
        return failed(&Status::unimplemented("Method Not Allowed"));
    }
    let credential = Credential::of(headers);
    let bytes_max = etcd.options().message_bytes_max();
    let executed = match method {
        Method::Watch | Method::LeaseKeepAlive => {
            let requests = Objects::new(body, Transcoder::new(method), bytes_max);
            etcd.stream(method, credential, Box::pin(requests))
        }
        _ => match read(body, bytes_max).await {
            Ok(text) => match Transcoder::new(method).request(&text) {
                Ok(request) => etcd.unary(method, &credential, request).await,
                Err(status) => Err(status),
            },
            Err(status) => Err(status),
        },
    };
    match executed {
        Err(status) => failed(&status),
        Ok(response) if method.is_server_streaming() => streamed(response, Transcoder::new(method)),
        Ok(response) => match transcoded(response, Transcoder::new(method)).await {
            Ok(text) => pages::json(StatusCode::OK, text),
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
async fn transcoded(response: FramedResponse, transcoder: Transcoder) -> Result<Bytes, Status> {
    let mut pieces = match response {
        FramedResponse::One(message) if message.len() <= TRANSCODED_IN_PLACE_MAX => {
            return Ok(transcoder.response(&message[PREFIX_BYTES..])?.into());
        }
        FramedResponse::One(message) => Box::pin(tokio_stream::once(Ok(message))),
        FramedResponse::Many(pieces) => pieces,
    };
    let mut message = Vec::new();
    let mut share = None;
    while let Some(piece) = pieces.next().await {
        message.extend_from_slice(&piece?);
        if share.is_none()
            && let Some(Prefix { message_bytes: bytes, .. }) = Prefix::parse(&message)
        {
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
    let text = stele_grpc::offload::offload(move || transcoder.response(&message[PREFIX_BYTES..]));
    Ok(charged(text.await??, share))
}

async fn read<B>(mut body: B, bytes_max: usize) -> Result<Bytes, Status>
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
        if text.len() > bytes_max / 3 * 4 {
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
pub fn interruption(error: &(dyn std::error::Error + 'static)) -> Status {
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
    Status::cancelled("the client disconnected")
}

/// Writes one object per line for each message, and stops after the first
/// error.
fn streamed(response: FramedResponse, transcoder: Transcoder) -> Response<PageBody> {
    let messages: MessageStream = match response {
        FramedResponse::One(message) => Box::pin(tokio_stream::once(Ok(message))),
        FramedResponse::Many(messages) => messages,
    };
    let lines = messages.map(move |message| {
        let text = message.and_then(|message| transcoder.response(&message[PREFIX_BYTES..]));
        let line = match text {
            Ok(text) => [b"{\"result\":", &text[..], b"}\n"].concat(),
            Err(status) => format!("{{\"error\":{}}}\n", error_object(&status)).into(),
        };
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(line)))
    });
    let mut response = Response::new(PageBody::new(StreamBody::new(lines)));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn failed(status: &Status) -> Response<PageBody> {
    pages::json(http_status(status.code()), error_object(status))
}

/// Converts an error to a JSON object.
fn error_object(status: &Status) -> String {
    let error = serde_json::json!({ "code": status.code() as i32, "message": status.message() });
    error.to_string()
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
    StatusCode::from_u16(number).expect("all numbers are valid HTTP statuses")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use stele_grpc::frame;
    use stele_grpc::memory::CallPools;

    use super::*;
    use crate::proto::etcd::{KeyValue, RangeResponse};

    fn response(bytes: usize) -> FramedResponse {
        let kv = KeyValue { value: vec![7; bytes].into(), ..Default::default() };
        let framed = frame::encode(&RangeResponse { kvs: vec![kv], ..Default::default() });
        // In pieces, like a large range.
        let pieces: Vec<_> =
            framed.chunks(100 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        FramedResponse::Many(Box::pin(tokio_stream::iter(pieces)))
    }

    /// Converts a range to JSON in a call whose memory is accounted.
    async fn transcoded(
        pools: &'static CallPools,
        response: FramedResponse,
    ) -> Result<Bytes, Status> {
        let mut memory = CallMemory::new(pools);
        let mut call = pin!(super::transcoded(response, Transcoder::new(Method::Range)));
        std::future::poll_fn(move |context| memory.within(|| call.as_mut().poll(context))).await
    }

    #[tokio::test]
    async fn json_is_charged_to_the_memory_of_responses_before_it_is_written() {
        let pools: &'static CallPools =
            Box::leak(Box::new(CallPools::new(1 << 20, 16 << 20, Duration::ZERO)));
        let first = transcoded(pools, response(700 << 10)).await.unwrap();
        assert!(first.len() > 700 << 10);
        assert!(pools.buffered_responses().used() >= JSON_FACTOR * (700 << 10));
        let refused = transcoded(pools, response(700 << 10)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(first);
        assert_eq!(pools.buffered_responses().used(), 0);
        transcoded(pools, response(700 << 10)).await.unwrap();
        let too_large = transcoded(pools, response(RESPONSE_BYTES_MAX + 1)).await.unwrap_err();
        assert_eq!(too_large.code(), Code::ResourceExhausted);
        assert!(too_large.message().contains("set a limit"), "{}", too_large.message());
    }
}
