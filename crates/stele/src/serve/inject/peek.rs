//! Finds the table of a call from the beginning of its message. The body is passed on
//! unchanged.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// The table is in the first field, well within this limit.
const PEEKED_BYTES_MAX: usize = 4 << 10;
/// The length of the prefix of a gRPC message.
const PREFIX_BYTES: usize = 5;
/// The first field of a message, as a string: tag 1, length-delimited.
const FIRST_FIELD: u8 = 0x0A;

/// Reads enough of a body to find the table. Returns the table and the whole body.
pub async fn table(body: Body) -> (Option<String>, Body) {
    let mut peeked = Peeked { frames: VecDeque::new(), rest: body };
    let mut seen = Vec::new();
    loop {
        if let Some(found) = first_field(&seen) {
            return (found, Body::new(peeked));
        }
        let rest = &mut peeked.rest;
        let Some(frame) = poll_fn(|cx| Pin::new(&mut *rest).poll_frame(cx)).await else {
            return (None, Body::new(peeked));
        };
        if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
            seen.extend_from_slice(&data[..data.len().min(PEEKED_BYTES_MAX)]);
        }
        let failed = frame.is_err();
        peeked.frames.push_back(frame);
        if failed || seen.len() >= PEEKED_BYTES_MAX {
            return (first_field(&seen).flatten(), Body::new(peeked));
        }
    }
}

/// Returns the first field of the message if it is text, or `None` if more bytes are
/// needed.
fn first_field(seen: &[u8]) -> Option<Option<String>> {
    let message = seen.get(PREFIX_BYTES..)?;
    let (&tag, rest) = message.split_first()?;
    if tag != FIRST_FIELD {
        return Some(None);
    }
    let (mut length, mut at) = (0_usize, 0);
    loop {
        let byte = *rest.get(at)?;
        // Two bytes encode more than the maximum length of a name.
        if at == 2 {
            return Some(None);
        }
        length |= usize::from(byte & 0x7F) << (7 * at);
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let text = rest.get(at..at + length)?;
    Some(String::from_utf8(text.to_vec()).ok())
}

/// A body whose first frames have already been read.
struct Peeked {
    frames: VecDeque<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

impl http_body::Body for Peeked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body made of these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn message(name: &str, rest: &[u8]) -> Vec<u8> {
        let mut field = vec![FIRST_FIELD];
        match name.len() {
            short @ 0..0x80 => field.push(short as u8),
            long => field.extend([(long & 0x7F) as u8 | 0x80, (long >> 7) as u8]),
        }
        field.extend_from_slice(name.as_bytes());
        field.extend_from_slice(rest);
        let mut sent = vec![0];
        sent.extend((field.len() as u32).to_be_bytes());
        sent.extend(field);
        sent
    }

    async fn peeked(sent: &[u8], cut: usize) -> Option<String> {
        let pieces = sent.chunks(cut).map(Bytes::copy_from_slice).collect();
        let (table, mut body) = table(Body::new(Pieces(pieces))).await;
        let mut passed = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            passed.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert_eq!(passed, sent, "the body is passed on unchanged");
        table
    }

    #[tokio::test]
    async fn a_table_is_read_however_its_bytes_are_cut() {
        let long = "t".repeat(300);
        for name in ["projects/p/instances/i/tables/t", &long, ""] {
            let sent = message(name, &[0x12, 1, 7]);
            for cut in 1..=sent.len() {
                assert_eq!(peeked(&sent, cut).await.as_deref(), Some(name), "cut by {cut}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_without_a_table_is_passed_on() {
        let huge = message(&"t".repeat(10_000), &[]);
        let other_field = [0, 0, 0, 0, 3, 0x12, 1, 7];
        let torn = [0, 0, 0, 0, 9, FIRST_FIELD, 7, b'a'];
        for sent in [&[][..], &[0, 0][..], &[0; 5], &other_field, &torn, &huge, &[0xFF; 9000]] {
            for cut in [1, 3, 5000] {
                assert_eq!(peeked(sent, cut).await, None, "{} bytes", sent.len());
            }
        }
    }
}
