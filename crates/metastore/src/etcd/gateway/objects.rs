//! The JSON objects of a request whose body is a stream of them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use serde_json::de::IoRead;
use tokio_stream::Stream;
use tonic::Status;

use super::BoxError;
use super::call::interruption;
use super::json::Transcoder;

/// Yields each object in wire format as soon as it is complete.
pub struct Objects<B> {
    body: B,
    transcoder: Transcoder,
    received: BytesMut,
    /// The scan of the object at the front.
    scan: ObjectScan,
    ended: bool,
    /// The maximum size of an object.
    bytes_max: usize,
}

/// The state of a scan for the end of an object.
#[derive(Default)]
struct ObjectScan {
    bytes: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl<B> Objects<B> {
    pub fn new(body: B, transcoder: Transcoder, bytes_max: usize) -> Objects<B> {
        Objects {
            body,
            transcoder,
            received: BytesMut::new(),
            scan: ObjectScan::default(),
            ended: false,
            bytes_max,
        }
    }

    /// Takes the object at the front, once it is complete.
    fn take(&mut self) -> Option<Result<Bytes, Status>> {
        if self.scan.bytes == 0 {
            let blank = self.received.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.received.advance(blank);
        }
        let end = self.scan.advance(&self.received)?;
        let object = self.received.split_to(end);
        self.scan = ObjectScan::default();
        let mut reader = serde_json::Deserializer::new(IoRead::new(&object[..]));
        Some(self.transcoder.read(&mut reader))
    }
}

impl ObjectScan {
    /// Continues the scan. Returns where the object, or whatever else is there,
    /// ends.
    fn advance(&mut self, received: &[u8]) -> Option<usize> {
        for &byte in &received[self.bytes..] {
            self.bytes += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.bytes);
                    }
                }
                // Not an object; the reader will refuse it.
                _ if self.depth == 0 => return Some(self.bytes),
                _ => {}
            }
        }
        None
    }
}

impl<B> Stream for Objects<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(object) = this.take() {
                this.ended = object.is_err();
                return Poll::Ready(Some(object));
            }
            if this.received.len() > this.bytes_max {
                this.ended = true;
                let refused = Status::invalid_argument("etcdserver: request is too large");
                return Poll::Ready(Some(Err(refused)));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        this.received.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(interruption(&*error.into()))));
                }
                None => {
                    this.ended = true;
                    if !this.received.is_empty() {
                        let truncated = Status::invalid_argument("unexpected EOF");
                        return Poll::Ready(Some(Err(truncated)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::StreamBody;
    use prost::Message;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::etcd::methods::Method;
    use crate::etcd::proto::LeaseKeepAliveRequest;

    async fn ids(text: &str, cut: usize) -> Vec<Result<i64, String>> {
        let frames: Vec<_> = text
            .as_bytes()
            .chunks(cut)
            .map(|piece| Ok::<_, Status>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = StreamBody::new(tokio_stream::iter(frames));
        let objects = Objects::new(body, Transcoder::new(Method::LeaseKeepAlive), 2 << 20);
        let read = |object: Result<Bytes, Status>| match object {
            Ok(bytes) => Ok(LeaseKeepAliveRequest::decode(bytes).unwrap().id),
            Err(status) => Err(status.message().to_owned()),
        };
        objects.map(read).collect().await
    }

    #[tokio::test]
    async fn objects_are_found_however_the_bytes_are_cut() {
        let text = " {\"ID\":\"1\"}{\"ID\":2,\"x\":\"}\\\"{\"}\n{\"ID\":3, \"y\":{\"z\":[{}]}} ";
        for cut in 1..text.len() {
            assert_eq!(ids(text, cut).await, [Ok(1), Ok(2), Ok(3)], "cut by {cut}");
        }
        let torn = ids("{\"ID\":1}{\"ID\":", 3).await;
        assert!(torn.len() == 2 && torn[1].is_err(), "{torn:?}");
        let nonsense = ids("{\"ID\":1} 5 {\"ID\":2}", 3).await;
        assert!(nonsense.len() == 2 && nonsense[1].is_err(), "{nonsense:?}");
    }
}
