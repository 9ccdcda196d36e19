//! The numbers that are stored with every log entry, and the samples that
//! retention is based on.

use bytes::{Buf, BufMut};

use crate::consensus::Position;
use crate::error::{Error, Result};

/// The numbers of the state as of one log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
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

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
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

const NUMBERS_BYTES: usize = 9 * 8;

impl Numbers {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(NUMBERS_BYTES);
        out.put_u64_le(self.applied.index);
        out.put_u64_le(self.applied.term);
        let numbers = [self.revision, self.compacted, self.waterline, self.live_bytes];
        for value in
            numbers.into_iter().chain([self.written_bytes, self.time_micros, self.clock_micros])
        {
            out.put_i64_le(value);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Numbers> {
        if bytes.len() != NUMBERS_BYTES {
            return Err(Error::Internal("the stored numbers have a wrong size".into()));
        }
        let applied = Position { index: bytes.get_u64_le(), term: bytes.get_u64_le() };
        Ok(Numbers {
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
        let wrong = || Error::Internal("a stored time sample has a wrong size".into());
        let revision = row.try_into().map(i64::from_be_bytes).map_err(|_| wrong())?;
        if bytes.len() != 24 {
            return Err(wrong());
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
    fn numbers_and_samples_come_back_as_they_were() {
        let numbers = Numbers { revision: 7, live_bytes: -1, ..Numbers::default() };
        assert_eq!(Numbers::decode(&numbers.encode()).unwrap(), numbers);
        assert!(Numbers::decode(b"short").is_err());
        let sample = Sample { revision: 9, clock_micros: 1, time_micros: -2, written_bytes: 3 };
        assert_eq!(Sample::decode(&9i64.to_be_bytes(), &sample.encode()).unwrap(), sample);
        assert!(Sample::decode(b"?", &sample.encode()).is_err());
    }
}
