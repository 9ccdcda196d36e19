//! The watermarks that are stored with every log entry, and the samples that
//! retention is based on.

use bytes::{Buf, BufMut};

use super::buckets::{BUCKETS, Buckets};
use crate::command::{LEVEL_BASE, LEVEL_MAX, LEVEL_OF_HASHES};
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
    /// Whether users and roles are stored, which versions before them would
    /// ignore.
    pub has_auth: bool,
    /// The feature level of the group.
    pub level: u32,
    /// The hashes of all current keys; zeros below level 2.
    pub buckets: Buckets,
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
            has_auth: false,
            level: LEVEL_BASE,
            buckets: Buckets::default(),
        }
    }
}

/// The length at the base level. From level 2 on, the level and the hashes
/// follow, so that versions that do not know levels refuse the state.
const WATERMARKS_BYTES: usize = 9 * 8;
/// The byte at the end of watermarks that say that users and roles are stored.
/// A version that does not know them refuses watermarks of this length.
const HAS_AUTH: u8 = 1;
const LEVELED_BYTES: usize = WATERMARKS_BYTES + 8 + 8 * BUCKETS;

impl Watermarks {
    pub fn encode(&self) -> Vec<u8> {
        let leveled = self.level >= LEVEL_OF_HASHES;
        let size = if leveled { LEVELED_BYTES } else { WATERMARKS_BYTES };
        let mut out = Vec::with_capacity(size);
        out.put_u64_le(self.applied.index);
        out.put_u64_le(self.applied.term);
        let values = [self.revision, self.compacted, self.waterline, self.live_bytes];
        for value in
            values.into_iter().chain([self.written_bytes, self.time_micros, self.clock_micros])
        {
            out.put_i64_le(value);
        }
        if leveled {
            out.put_u64_le(self.level.into());
            self.buckets.0.iter().for_each(|hash| out.put_u64_le(*hash));
        }
        if self.has_auth {
            out.push(HAS_AUTH);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Watermarks> {
        if let Some(mut level) = bytes.get(WATERMARKS_BYTES..).filter(|rest| rest.len() >= 8) {
            let level = level.get_u64_le();
            if level > u64::from(LEVEL_MAX) {
                return Err(Error::Config(format!(
                    "the state has feature level {level}, but this version of stele knows only \
                     levels up to {LEVEL_MAX}: open this directory with the newer version"
                )));
            }
        }
        let has_auth = [WATERMARKS_BYTES + 1, LEVELED_BYTES + 1].contains(&bytes.len())
            && bytes.ends_with(&[HAS_AUTH]);
        let len = bytes.len() - usize::from(has_auth);
        if ![WATERMARKS_BYTES, LEVELED_BYTES].contains(&len) {
            let found = bytes.len();
            return Err(Error::Internal(format!(
                "the stored watermarks have {found} bytes instead of {WATERMARKS_BYTES}"
            )));
        }
        let applied = Position { index: bytes.get_u64_le(), term: bytes.get_u64_le() };
        let mut watermarks = Watermarks {
            applied,
            revision: bytes.get_i64_le(),
            compacted: bytes.get_i64_le(),
            waterline: bytes.get_i64_le(),
            live_bytes: bytes.get_i64_le(),
            written_bytes: bytes.get_i64_le(),
            time_micros: bytes.get_i64_le(),
            clock_micros: bytes.get_i64_le(),
            has_auth,
            ..Watermarks::default()
        };
        if bytes.len() >= LEVELED_BYTES - WATERMARKS_BYTES {
            watermarks.level = u32::try_from(bytes.get_u64_le()).unwrap_or(LEVEL_MAX);
            watermarks.buckets.0.iter_mut().for_each(|hash| *hash = bytes.get_u64_le());
        }
        Ok(watermarks)
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
        let with_auth = Watermarks { has_auth: true, ..watermarks };
        assert_eq!(Watermarks::decode(&with_auth.encode()).unwrap(), with_auth);
        let newer = [&watermarks.encode()[..], &[9]].concat();
        assert!(Watermarks::decode(&newer).is_err());
        let mut leveled = Watermarks { level: LEVEL_MAX, ..watermarks };
        leveled.buckets.0[3] = u64::MAX;
        assert_eq!(Watermarks::decode(&leveled.encode()).unwrap(), leveled);
        assert_eq!(watermarks.encode().len(), WATERMARKS_BYTES, "older versions read it");
        let newer = Watermarks { level: LEVEL_MAX + 1, ..leveled };
        let refused = Watermarks::decode(&newer.encode()).unwrap_err().to_string();
        let level = format!("feature level {}", LEVEL_MAX + 1);
        assert!(refused.contains(&level) && refused.contains("newer"), "{refused}");
        let sample = Sample { revision: 9, clock_micros: 1, time_micros: -2, written_bytes: 3 };
        assert_eq!(Sample::decode(&9i64.to_be_bytes(), &sample.encode()).unwrap(), sample);
        assert!(Sample::decode(b"?", &sample.encode()).is_err());
    }
}
