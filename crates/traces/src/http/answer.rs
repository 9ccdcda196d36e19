//! Responses: JSON, whole or streamed, and errors with their status.

use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::error::Error;

/// Number of bytes that are collected before they are sent.
const PIECE_BYTES: usize = 64 << 10;
/// The maximum number of pieces that are buffered for a reader.
const PIECES_MAX: usize = 8;
const READER_WAIT: Duration = Duration::from_secs(30);

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
        let body = json!({"error": "method not allowed", "kind": "method"});
        Answer { status: StatusCode::METHOD_NOT_ALLOWED, body }
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        let status = StatusCode::from_u16(error.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(%error, "traces request failed");
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

/// A body that is written while it is read. Writing stops when the reader disconnects
/// or stalls, because the buffered pieces and the data behind them stay in memory. A
/// body that is not finished ends with an error, so that no reader mistakes it for
/// complete.
pub struct Pieces {
    send: mpsc::Sender<BodyPiece>,
    piece: Vec<u8>,
    wait: Duration,
}

enum BodyPiece {
    Bytes(Bytes),
    Broken,
    End,
}

/// The reader has disconnected or stalled.
#[derive(Debug)]
pub struct Disconnected;

impl Pieces {
    /// Returns the writing end and the response that it fills.
    pub fn new(content_type: &'static str) -> (Pieces, Response) {
        let (send, receive) = mpsc::channel(PIECES_MAX);
        let parts = ReceiverStream::new(receive).chain(tokio_stream::once(BodyPiece::Broken));
        let body = Body::from_stream(parts.map_while(|part| match part {
            BodyPiece::Bytes(bytes) => Some(Ok(bytes)),
            BodyPiece::Broken => Some(Err(std::io::Error::other("the response was interrupted"))),
            BodyPiece::End => None,
        }));
        let response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
        let piece = Vec::with_capacity(PIECE_BYTES);
        (Pieces { send, piece, wait: READER_WAIT }, response)
    }

    pub async fn text(&mut self, text: &str) -> Result<(), Disconnected> {
        self.piece.extend_from_slice(text.as_bytes());
        self.send_full().await
    }

    /// Writes the text in front of a value, and the value as JSON.
    pub async fn field(
        &mut self,
        before: &str,
        value: &impl Serialize,
    ) -> Result<(), Disconnected> {
        self.piece.extend_from_slice(before.as_bytes());
        self.json(value).await
    }

    pub async fn json(&mut self, value: &impl Serialize) -> Result<(), Disconnected> {
        if let Err(error) = serde_json::to_writer(&mut self.piece, value) {
            tracing::warn!(%error, "traces response interrupted");
            return Err(Disconnected);
        }
        self.send_full().await
    }

    async fn send_full(&mut self) -> Result<(), Disconnected> {
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.pass(BodyPiece::Bytes(piece.into())).await
    }

    async fn pass(&self, part: BodyPiece) -> Result<(), Disconnected> {
        match tokio::time::timeout(self.wait, self.send.send(part)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Disconnected),
        }
    }

    pub async fn end(mut self) -> Result<(), Disconnected> {
        let piece = std::mem::take(&mut self.piece);
        self.pass(BodyPiece::Bytes(piece.into())).await?;
        self.pass(BodyPiece::End).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stalled_reader_is_disconnected() {
        let (mut pieces, response) = Pieces::new("text/plain");
        pieces.wait = Duration::from_millis(1);
        let text = "x".repeat(PIECE_BYTES);
        for _ in 0..PIECES_MAX {
            pieces.text(&text).await.unwrap();
        }
        assert!(pieces.text(&text).await.is_err());
        drop(pieces);
        // The response that it received is incomplete.
        assert!(axum::body::to_bytes(response.into_body(), usize::MAX).await.is_err());
    }

    #[tokio::test]
    async fn a_finished_response_is_complete() {
        let (mut pieces, response) = Pieces::new("text/plain");
        pieces.text("a").await.unwrap();
        pieces.json(&[1]).await.unwrap();
        pieces.end().await.unwrap();
        let read = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        assert_eq!(read.unwrap(), "a[1]");
    }
}
