//! Answers: JSON, whole or in pieces, and errors with their one status.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::error::Error;

/// Bytes that are gathered before they are sent.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that may wait for a reader.
const PIECES_MAX: usize = 8;

pub struct Answer {
    status: StatusCode,
    body: Value,
}

pub type Answered = Result<Answer, Answer>;

impl Answer {
    pub fn ok(body: Value) -> Answer {
        Answer { status: StatusCode::OK, body }
    }

    pub fn created(body: Value) -> Answer {
        Answer { status: StatusCode::CREATED, body }
    }

    pub fn wrong_method() -> Answer {
        let body = json!({"error": "this page takes other methods", "kind": "method"});
        Answer { status: StatusCode::METHOD_NOT_ALLOWED, body }
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        let status = StatusCode::from_u16(error.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(%error, "a request for traces failed");
        }
        let mut body = json!({"error": error.to_string(), "kind": error.kind()});
        if let Error::Partial { failed, .. } = &error {
            body["failed"] = json!(failed);
        }
        Answer { status, body }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let body = self.body.to_string();
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// A body that is written while it is read. It stops when the reader leaves.
pub struct Pieces {
    send: mpsc::Sender<Result<Bytes, std::io::Error>>,
    piece: Vec<u8>,
}

/// The reader has left.
pub struct Left;

impl Pieces {
    /// The writing end, and the response it fills.
    pub fn new(content_type: &'static str) -> (Pieces, Response) {
        let (send, receive) = mpsc::channel(PIECES_MAX);
        let body = Body::from_stream(ReceiverStream::new(receive));
        let response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
        (Pieces { send, piece: Vec::with_capacity(PIECE_BYTES) }, response)
    }

    pub async fn text(&mut self, text: &str) -> Result<(), Left> {
        self.piece.extend_from_slice(text.as_bytes());
        self.send_full().await
    }

    pub async fn json(&mut self, value: &impl Serialize) -> Result<(), Left> {
        if let Err(error) = serde_json::to_writer(&mut self.piece, value) {
            self.fail(&error.to_string()).await;
            return Err(Left);
        }
        self.send_full().await
    }

    async fn send_full(&mut self) -> Result<(), Left> {
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.send.send(Ok(piece.into())).await.map_err(|_| Left)
    }

    /// Breaks the body off, so that nobody takes it for whole.
    pub async fn fail(&mut self, why: &str) {
        tracing::warn!(why, "an answer about traces was broken off");
        let _ = self.send.send(Err(std::io::Error::other(why.to_string()))).await;
    }

    pub async fn end(self) {
        let _ = self.send.send(Ok(self.piece.into())).await;
    }
}
