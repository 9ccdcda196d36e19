//! gRPC framing: every message is preceded by a compression flag and its length.
//! Writers reserve [`PREFIX_BYTES`] before a message and fill them in afterwards,
//! so a message is never copied to be framed.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// The length of the prefix of a message.
pub const PREFIX_BYTES: usize = 5;

/// The prefix of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// 0 for a plain message, 1 for a compressed one.
    pub flag: u8,
    pub message_bytes: usize,
}

impl Prefix {
    /// Parses the prefix at the start of `received`; `None` if it has not arrived
    /// completely.
    pub fn parse(received: &[u8]) -> Option<Prefix> {
        received.first_chunk().copied().map(Prefix::from)
    }
}

impl From<[u8; PREFIX_BYTES]> for Prefix {
    fn from([flag, length @ ..]: [u8; PREFIX_BYTES]) -> Prefix {
        Prefix { flag, message_bytes: u32::from_be_bytes(length) as usize }
    }
}

/// Fills in the prefix of a plain message of `message_bytes`, of which `frame` may
/// contain only the beginning.
///
/// # Panics
///
/// If the message has 4 GiB or more: callers limit messages to far less.
pub fn set_prefix(frame: &mut [u8], message_bytes: usize) {
    let length = u32::try_from(message_bytes).expect("callers limit messages to far below 4 GiB");
    frame[0] = 0;
    frame[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Fills in the prefix of the plain message that makes up the rest of `frame`.
pub fn seal(frame: &mut [u8]) {
    set_prefix(frame, frame.len() - PREFIX_BYTES);
}

/// Returns an empty frame: the prefix, which [`finish`] fills in, and space for a
/// message of `capacity` bytes.
pub fn begin(capacity: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + capacity);
    frame.put_bytes(0, PREFIX_BYTES);
    frame
}

/// Returns the frame of the message that was appended after [`begin`].
pub fn finish(mut frame: BytesMut) -> Bytes {
    seal(&mut frame);
    frame.freeze()
}

/// Encodes a message with its prefix.
pub fn encode(message: &impl Message) -> Bytes {
    let message_bytes = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX_BYTES + message_bytes);
    frame.resize(PREFIX_BYTES, 0);
    set_prefix(&mut frame, message_bytes);
    message.encode_raw(&mut frame);
    frame.into()
}

/// Finds where messages begin in a stream that arrives in arbitrary pieces. Only
/// prefixes are examined; messages are decoded elsewhere.
#[derive(Default)]
pub struct Scanner {
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    message_left: usize,
}

impl Scanner {
    /// Advances over `data`. Returns the prefix of the last message that begins in
    /// it; any earlier ones end in it too.
    pub fn advance(&mut self, mut data: &[u8]) -> Option<Prefix> {
        let mut last = None;
        while !data.is_empty() {
            let skipped = self.message_left.min(data.len());
            self.message_left -= skipped;
            data = &data[skipped..];
            let taken = (PREFIX_BYTES - self.prefix_filled).min(data.len());
            self.prefix[self.prefix_filled..][..taken].copy_from_slice(&data[..taken]);
            self.prefix_filled += taken;
            data = &data[taken..];
            if self.prefix_filled == PREFIX_BYTES {
                let prefix = Prefix::from(self.prefix);
                self.message_left = prefix.message_bytes;
                self.prefix_filled = 0;
                last = Some(prefix);
            }
        }
        last
    }

    /// Returns the number of bytes of the current message that have not arrived yet.
    pub fn message_left(&self) -> usize {
        self.message_left
    }

    /// Returns whether a message has begun but not ended.
    pub fn is_within_message(&self) -> bool {
        self.message_left > 0 || self.prefix_filled > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_message_follows_its_prefix() {
        let sent = "text".to_string();
        let frame = encode(&sent);
        assert_eq!(Prefix::parse(&frame), Some(Prefix { flag: 0, message_bytes: 6 }));
        assert_eq!(String::decode(&frame[PREFIX_BYTES..]).unwrap(), sent);
        assert_eq!(Prefix::parse(&frame[..PREFIX_BYTES - 1]), None);
        let mut by_hand = [&[9; PREFIX_BYTES], &frame[PREFIX_BYTES..]].concat();
        seal(&mut by_hand);
        assert_eq!(by_hand, frame);
    }

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let mut stream = Vec::new();
        for bytes in [3usize, 0, 300, 1] {
            let mut frame = vec![0xAB; PREFIX_BYTES + bytes];
            seal(&mut frame);
            stream.extend(frame);
        }
        for cut in 1..stream.len() {
            let mut scanner = Scanner::default();
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                found.extend(scanner.advance(piece));
            }
            assert_eq!(found.last(), Some(&Prefix { flag: 0, message_bytes: 1 }));
            assert!(cut > 5 || found.len() == 4, "{cut}: {found:?}");
            assert!(!scanner.is_within_message());
        }
        let mut scanner = Scanner::default();
        scanner.advance(&stream[..2]);
        assert!(scanner.is_within_message());
        scanner.advance(&stream[2..7]);
        assert!(scanner.is_within_message());
        scanner.advance(&stream[7..8]);
        assert!(!scanner.is_within_message());
    }
}
