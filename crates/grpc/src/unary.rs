//! Reads calls with a single request message from the body as it arrives. A
//! message that fits into one frame is not copied.

use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataValue;

use crate::frame::{PREFIX_BYTES, Prefix};
use crate::memory::CallMemory;
use crate::offload::in_place_if_large;
use crate::{AnyMessage, Precheck};

/// The number of bytes that could be copied while one byte of a message is
/// decoded.
const DECODING_COST: usize = 4;

/// Reads the only message of a call, and its stream to the end.
pub async fn read<M: Message + Default>(
    headers: &http::HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<M, Status> {
    read_checked::<M, AnyMessage>(headers, body, bytes_max).await
}

/// Like [`read`], but prechecks the bytes before decoding them.
pub async fn read_checked<M: Message + Default, P: Precheck>(
    headers: &http::HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<M, Status> {
    let mut message = read_frame(headers, body, bytes_max).await?;
    message.advance(PREFIX_BYTES);
    let decoded_bytes = in_place_if_large(message.len(), || P::check(&message))?;
    CallMemory::current().charge_decoded(decoded_bytes).await?;
    in_place_if_large(decoded_bytes.saturating_mul(DECODING_COST), || decode(message))
}

/// Reads the only message of a call without decoding it. Returns it with its prefix, as it
/// is passed on to another server.
pub async fn read_frame(
    headers: &http::HeaderMap,
    mut body: Body,
    bytes_max: usize,
) -> Result<Bytes, Status> {
    check_encoding(headers)?;
    let mut received = Received::default();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            received.add(data, bytes_max)?;
        }
    }
    received.frame()
}

/// Decodes a message. Undecodable bytes are reported as the sender's mistake.
pub fn decode<M: Message + Default>(message: impl Buf) -> Result<M, Status> {
    let unreadable =
        |error| Status::invalid_argument(format!("The message cannot be read: {error}"));
    M::decode(message).map_err(unreadable)
}

/// Rejects compressed requests as the generated methods do.
fn check_encoding(headers: &http::HeaderMap) -> Result<(), Status> {
    match headers.get("grpc-encoding") {
        None => Ok(()),
        Some(encoding) if encoding == "identity" => Ok(()),
        Some(encoding) => {
            let what = format!("Requests compressed with {encoding:?} are not supported");
            Err(only_identity(what))
        }
    }
}

fn only_identity(what: impl Into<String>) -> Status {
    let mut status = Status::unimplemented(what);
    let accepted = MetadataValue::from_static("identity");
    status.metadata_mut().insert("grpc-accept-encoding", accepted);
    status
}

/// The received part of a message and its prefix.
#[derive(Default)]
struct Received {
    /// The first frame, until a second one arrives.
    first: Bytes,
    all: BytesMut,
    /// Known once the prefix has arrived.
    message_bytes: Option<usize>,
}

impl Received {
    fn add(&mut self, data: Bytes, bytes_max: usize) -> Result<(), Status> {
        if self.first.is_empty() && self.all.is_empty() {
            self.first = data;
        } else {
            let first = std::mem::take(&mut self.first);
            let arrived = self.all.len() + first.len() + data.len();
            self.all.reserve(capacity(arrived, self.message_bytes) - self.all.len());
            self.all.extend_from_slice(&first);
            self.all.extend_from_slice(&data);
        }
        let received = if self.all.is_empty() { &self.first[..] } else { &self.all[..] };
        if self.message_bytes.is_none() {
            self.message_bytes = message_bytes(received, bytes_max)?;
        }
        match self.message_bytes {
            Some(bytes) if received.len() > PREFIX_BYTES + bytes => {
                Err(Status::invalid_argument("The request has more than one message"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the message with its prefix.
    fn frame(self) -> Result<Bytes, Status> {
        let received = if self.all.is_empty() { self.first } else { self.all.freeze() };
        if received.is_empty() {
            return Err(Status::invalid_argument("The request has no message"));
        }
        if self.message_bytes.is_none_or(|bytes| received.len() < PREFIX_BYTES + bytes) {
            return Err(Status::invalid_argument("The request ends within its message"));
        }
        Ok(received)
    }
}

/// Returns the buffer capacity for a message of which `arrived` bytes are there:
/// that of the whole message only once a quarter of it has arrived, so a message
/// that was merely announced takes no memory.
fn capacity(arrived: usize, message_bytes: Option<usize>) -> usize {
    let whole = message_bytes.map_or(0, |bytes| PREFIX_BYTES + bytes);
    if arrived >= whole / 4 { whole.max(arrived) } else { (2 * arrived).min(whole) }
}

/// Returns the length of the message that begins here, once its prefix has
/// arrived.
fn message_bytes(received: &[u8], bytes_max: usize) -> Result<Option<usize>, Status> {
    let Some(Prefix { flag, message_bytes }) = Prefix::parse(received) else { return Ok(None) };
    if flag != 0 {
        return Err(only_identity("Compressed messages are not supported"));
    }
    if message_bytes > bytes_max {
        let what = format!("A message of {message_bytes} bytes is over the limit of {bytes_max}");
        return Err(Status::resource_exhausted(what));
    }
    Ok(Some(message_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    const MAX: usize = 1000;

    fn received(stream: &[u8], cut: usize) -> Result<Bytes, Status> {
        let mut received = Received::default();
        for piece in stream.chunks(cut) {
            received.add(Bytes::copy_from_slice(piece), MAX)?;
        }
        received.frame().map(|frame| frame.slice(PREFIX_BYTES..))
    }

    #[test]
    fn a_message_is_found_however_its_bytes_are_cut() {
        for sent in [&b""[..], b"m", &[7; 300]] {
            let mut stream = vec![0];
            stream.extend((sent.len() as u32).to_be_bytes());
            stream.extend_from_slice(sent);
            for cut in 1..=stream.len() {
                assert_eq!(received(&stream, cut).unwrap(), sent, "cut by {cut}");
                let torn = received(&stream[..stream.len() - 1], cut).unwrap_err();
                assert_eq!(torn.code(), tonic::Code::InvalidArgument);
                let doubled = received(&stream.repeat(2), cut).unwrap_err();
                assert_eq!(doubled.code(), tonic::Code::InvalidArgument);
            }
        }
        assert_eq!(received(&[], 1).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_buffer_grows_with_what_arrives() {
        let mib = 1 << 20;
        assert_eq!(capacity(6, Some(256 * mib)), 12);
        assert_eq!(capacity(65 * mib, Some(256 * mib)), 256 * mib + PREFIX_BYTES);
        assert_eq!((capacity(4, None), capacity(9, Some(2))), (4, 9));
    }

    #[test]
    fn too_large_and_compressed_messages_are_refused_by_their_prefix() {
        let large = received(&[0, 0, 0, 0x10, 0], 2).unwrap_err();
        assert_eq!(large.code(), tonic::Code::ResourceExhausted);
        let compressed = received(&[1, 0, 0, 0, 9], 5).unwrap_err();
        assert_eq!(compressed.code(), tonic::Code::Unimplemented);
        assert_eq!(compressed.metadata().get("grpc-accept-encoding").unwrap(), "identity");
    }

    #[test]
    fn an_encoded_message_is_read() {
        let sent = "text".to_string();
        let message = received(&frame::encode(&sent), 3).unwrap();
        assert_eq!(decode::<String>(message).unwrap(), sent);
        let unreadable = decode::<String>(&[0x0A, 0x7F][..]).unwrap_err();
        assert_eq!(unreadable.code(), tonic::Code::InvalidArgument);
    }
}
