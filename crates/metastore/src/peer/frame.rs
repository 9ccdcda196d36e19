//! Frames: length, id, checksum, payload.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes before the payload: length, id and checksum.
const HEAD_BYTES: usize = 4 + 8 + 4;
/// The maximum payload. An append has at most 64 entries of 4 MiB.
const PAYLOAD_BYTES_MAX: usize = 512 << 20;

/// A request or a response; a response has the id of its request.
pub struct Frame {
    pub id: u64,
    pub payload: Bytes,
}

fn checksum(id: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.to_le_bytes()), payload)
}

pub async fn write(out: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let length = u32::try_from(frame.payload.len()).map_err(io::Error::other)?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..12].copy_from_slice(&frame.id.to_le_bytes());
    head[12..].copy_from_slice(&checksum(frame.id, &frame.payload).to_le_bytes());
    out.write_all(&head).await?;
    out.write_all(&frame.payload).await
}

/// Reads the next frame; `None` at the end of the connection.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD_BYTES];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let [a, b, c, d, id @ .., e, f, g, h] = head;
    let (length, id) = (u32::from_le_bytes([a, b, c, d]) as usize, u64::from_le_bytes(id));
    if length > PAYLOAD_BYTES_MAX {
        return Err(invalid(format!("a message of {length} bytes is too large")));
    }
    // Grows with what arrives, whatever the length claims.
    let mut payload = Vec::with_capacity(length.min(1 << 20));
    from.take(length as u64).read_to_end(&mut payload).await?;
    if payload.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if checksum(id, &payload) != u32::from_le_bytes([e, f, g, h]) {
        return Err(invalid("the checksum of a message is wrong".to_string()));
    }
    Ok(Some(Frame { id, payload: payload.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_damaged_or_truncated_frame_is_an_error() {
        let frame = Frame { id: 7, payload: Bytes::from_static(b"payload") };
        let mut bytes = Vec::new();
        write(&mut bytes, &frame).await.unwrap();
        let whole = read(&mut &bytes[..]).await.unwrap().unwrap();
        assert_eq!((whole.id, whole.payload), (7, frame.payload));
        assert!(read(&mut &bytes[..0]).await.unwrap().is_none());
        assert!(read(&mut &bytes[..bytes.len() - 1]).await.is_err());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(read(&mut &bytes[..]).await.is_err(), "{at}");
            bytes[at] ^= 1;
        }
        let claims = [255; HEAD_BYTES];
        assert!(read(&mut &claims[..]).await.is_err());
    }
}
