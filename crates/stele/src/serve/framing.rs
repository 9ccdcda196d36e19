//! Finds where messages begin in the bytes of a gRPC request. Each message is preceded by
//! a flag and its length; only lengths are examined here, decoding comes later.

const PREFIX_BYTES: usize = 5;

/// The current position in a stream of messages.
#[derive(Default)]
pub struct Framing {
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    message_left: usize,
}

/// The beginning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub flag: u8,
    pub bytes: usize,
}

impl Framing {
    /// Advances over `data`. Returns the last message that begins in it; any earlier ones
    /// end in it too.
    pub fn advance(&mut self, mut data: &[u8]) -> Option<Start> {
        let mut start = None;
        while !data.is_empty() {
            let skipped = self.message_left.min(data.len());
            self.message_left -= skipped;
            data = &data[skipped..];
            let taken = (PREFIX_BYTES - self.prefix_filled).min(data.len());
            self.prefix[self.prefix_filled..][..taken].copy_from_slice(&data[..taken]);
            self.prefix_filled += taken;
            data = &data[taken..];
            if self.prefix_filled == PREFIX_BYTES {
                let [flag, length @ ..] = self.prefix;
                self.message_left = u32::from_be_bytes(length) as usize;
                self.prefix_filled = 0;
                start = Some(Start { flag, bytes: self.message_left });
            }
        }
        start
    }

    /// Returns the number of bytes of the message that have not arrived yet.
    pub fn message_left(&self) -> usize {
        self.message_left
    }

    /// Returns whether a message has begun but not ended.
    pub fn within_message(&self) -> bool {
        self.message_left > 0 || self.prefix_filled > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let mut stream = Vec::new();
        for bytes in [3usize, 0, 300, 1] {
            stream.push(0);
            stream.extend(u32::try_from(bytes).unwrap().to_be_bytes());
            stream.extend(vec![0xAB; bytes]);
        }
        for cut in 1..stream.len() {
            let mut framing = Framing::default();
            let mut starts = Vec::new();
            for piece in stream.chunks(cut) {
                starts.extend(framing.advance(piece));
            }
            assert_eq!(starts.last(), Some(&Start { flag: 0, bytes: 1 }));
            assert!(cut > 5 || starts.len() == 4, "{cut}: {starts:?}");
            assert!(!framing.within_message());
        }
        let mut framing = Framing::default();
        framing.advance(&stream[..2]);
        assert!(framing.within_message());
        framing.advance(&stream[2..7]);
        assert!(framing.within_message());
        framing.advance(&stream[7..8]);
        assert!(!framing.within_message());
    }
}
