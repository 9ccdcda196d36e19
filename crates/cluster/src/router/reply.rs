//! The response of one server, message by message, and then its status.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use stele_grpc::body;
use stele_grpc::frame::{PREFIX_BYTES, Prefix};
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The reason of an error about rows that the server does not have.
const NOT_LOADED: &str = "TABLET_NOT_LOADED";
const DOMAIN: &str = "stele.tables";

/// Whether a call failed because the server does not have the rows, so that it was not
/// applied.
pub fn is_not_loaded(status: &Status) -> bool {
    matches!(status.code(), Code::FailedPrecondition | Code::Unavailable)
        && status
            .get_details_error_info()
            .is_some_and(|info| info.reason == NOT_LOADED && info.domain == DOMAIN)
}

/// The end of a response.
#[derive(Debug)]
pub enum End {
    Status(Status),
    /// The connection broke: the outcome is unknown.
    Broken(String),
}

/// A response that is being received.
pub struct Reply {
    body: Body,
    /// Bytes of a message that is not complete.
    partial: BytesMut,
    whole: Option<Bytes>,
    end: Option<End>,
}

impl Reply {
    pub fn new(response: http::Response<Body>) -> Reply {
        let (head, body) = response.into_parts();
        let end = match Status::from_header_map(&head.headers) {
            Some(status) => Some(End::Status(status)),
            None if head.status != http::StatusCode::OK => {
                Some(End::Broken(format!("HTTP status {}", head.status)))
            }
            None => None,
        };
        Reply { body, partial: BytesMut::new(), whole: None, end }
    }

    /// Returns the next message with its prefix, or the end.
    pub async fn next(&mut self) -> Result<Bytes, End> {
        loop {
            if let Some(message) = self.message() {
                return Ok(message);
            }
            if let Some(end) = self.end.take() {
                return Err(end);
            }
            let polled = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match polled {
                Some(Ok(frame)) => self.add(frame),
                Some(Err(error)) => self.end = Some(End::Broken(error.message().to_string())),
                None => self.end = Some(End::Broken("it has no end".into())),
            }
        }
    }

    fn add(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.partial.is_empty() && is_whole(&data) => self.whole = Some(data),
            Ok(data) => self.partial.extend_from_slice(&data),
            Err(frame) => {
                let status = frame.into_trailers().ok();
                let status = status.and_then(|trailers| Status::from_header_map(&trailers));
                self.end = Some(match status {
                    Some(status) => End::Status(status),
                    None => End::Broken("it has no status".into()),
                });
            }
        }
    }

    fn message(&mut self) -> Option<Bytes> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let length = PREFIX_BYTES + Prefix::parse(&self.partial)?.message_bytes;
        (self.partial.len() >= length).then(|| self.partial.split_to(length).freeze())
    }

    /// Receives all of a short response.
    pub async fn all(mut self) -> (Vec<Bytes>, End) {
        let mut messages = Vec::new();
        loop {
            match self.next().await {
                Ok(message) => messages.push(message),
                Err(end) => return (messages, end),
            }
        }
    }
}

/// Receives a response with one message.
pub async fn only_message<M: prost::Message + Default>(
    response: http::Response<Body>,
) -> Result<M, Status> {
    match Reply::new(response).all().await {
        (messages, End::Status(status)) if status.code() == Code::Ok => match &messages[..] {
            [message] => stele_grpc::unary::decode(&message[PREFIX_BYTES..]),
            _ => Err(Status::internal("a server sent no message, or several")),
        },
        (_, End::Status(status)) => Err(status),
        (_, End::Broken(why)) => Err(Status::unavailable(why)),
    }
}

/// Whether these bytes are one message.
fn is_whole(data: &[u8]) -> bool {
    Prefix::parse(data).is_some_and(|prefix| data.len() == PREFIX_BYTES + prefix.message_bytes)
}

/// A response that is put together while it is sent.
pub trait Stream: Send + 'static {
    /// Returns the next message with its prefix; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Status>> + Send;
}

/// Returns a response whose messages are made when the client has space for them.
pub fn respond_with(stream: impl Stream) -> http::Response<Body> {
    let frames = unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        match stream.next().await {
            Ok(Some(message)) => Some((Ok(Frame::data(message)), Some(stream))),
            Ok(None) => Some((body::trailers(&Status::ok("")), None)),
            Err(status) => Some((body::trailers(&status), None)),
        }
    });
    body::response(StreamBody::new(frames))
}
