//! The watermarks that are stored with every log entry, and the samples that
//! retention is based on.

use bytes::{Buf, BufMut};

use crate::consensus::Position;
use crate::error::{Error, Result};

/// How far the state has come as of one log entry: its position in the log, the
/// revisions that bound reads, the amount of data, and the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub applied: Position,
    /// The newest revision. A fresh store is at 1.
    pub revision: i64,
    /// The revision of etcd's last Compact; -1 before the first.
    pub compacted: i64,
    /// The revision at which history begins; -1 before any was dropped.
    pub waterline: i64,
    /// Bytes of the current keys and values.
    pub live_bytes: i64,
    /// Bytes of all keys and values ever written. The difference to an older
    /// value is the amount of history since then.
    pub written_bytes: i64,
    /// The newest timestamp of a proposal; never decreases.
    pub time_micros: i64,
    /// The group clock: how long the group has been running.
    pub clock_micros: i64,
}

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks {
            applied: Position::default(),
            revision: 1,
            compacted: -1,
            waterline: -1,
            live_bytes: 0,
            written_bytes: 0,
            time_micros: i64::MIN,
            clock_micros: 0,
        }
    }
}

const WATERMARKS_BYTES: usize = 9 * 8;

impl Watermarks {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(WATERMARKS_BYTES);
        out.put_u64_le(self.applied.index);
        out.put_u64_le(self.applied.term);
        let values = [self.revision, self.compacted, self.waterline, self.live_bytes];
        for value in
            values.into_iter().chain([self.written_bytes, self.time_micros, self.clock_micros])
        {
            out.put_i64_le(value);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Watermarks> {
        if bytes.len() != WATERMARKS_BYTES {
            let found = bytes.len();
            return Err(Error::Internal(format!(
                "the stored watermarks have {found} bytes instead of {WATERMARKS_BYTES}"
            )));
        }
        let applied = Position { index: bytes.get_u64_le(), term: bytes.get_u64_le() };
        Ok(Watermarks {
            applied,
            revision: bytes.get_i64_le(),
            compacted: bytes.get_i64_le(),
            waterline: bytes.get_i64_le(),
            live_bytes: bytes.get_i64_le(),
            written_bytes: bytes.get_i64_le(),
            time_micros: bytes.get_i64_le(),
            clock_micros: bytes.get_i64_le(),
        })
    }
}

/// The clocks and the written bytes at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub revision: i64,
    pub clock_micros: i64,
    pub time_micros: i64,
    pub written_bytes: i64,
}

impl Sample {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.put_i64_le(self.clock_micros);
        out.put_i64_le(self.time_micros);
        out.put_i64_le(self.written_bytes);
        out
    }

    pub fn decode(row: &[u8], mut bytes: &[u8]) -> Result<Sample> {
        let malformed = || Error::Internal("cannot decode a stored time sample".into());
        let revision = row.try_into().map(i64::from_be_bytes).map_err(|_| malformed())?;
        if bytes.len() != 24 {
            return Err(malformed());
        }
        Ok(Sample {
            revision,
            clock_micros: bytes.get_i64_le(),
            time_micros: bytes.get_i64_le(),
            written_bytes: bytes.get_i64_le(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_and_samples_come_back_as_they_were() {
        let watermarks = Watermarks { revision: 7, live_bytes: -1, ..Watermarks::default() };
        assert_eq!(Watermarks::decode(&watermarks.encode()).unwrap(), watermarks);
        assert!(Watermarks::decode(b"short").is_err());
        let sample = Sample { revision: 9, clock_micros: 1, time_micros: -2, written_bytes: 3 };
        assert_eq!(Sample::decode(&9i64.to_be_bytes(), &sample.encode()).unwrap(), sample);
        assert!(Sample::decode(b"?", &sample.encode()).is_err());
    }
}
