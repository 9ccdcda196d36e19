//! A lease as it is stored.

use bytes::{Buf, BufMut};

/// A lease as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLease {
    pub ttl_seconds: i64,
    /// The deadline by the group clock; `None` if it was never recorded.
    pub deadline_micros: Option<i64>,
}

impl StoredLease {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_i64_le(self.ttl_seconds);
        if let Some(deadline_micros) = self.deadline_micros {
            out.put_i64_le(deadline_micros);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Option<StoredLease> {
        let ttl_seconds = bytes.try_get_i64_le().ok()?;
        let deadline_micros = match bytes.is_empty() {
            true => None,
            false => Some(bytes.try_get_i64_le().ok()?),
        };
        bytes.is_empty().then_some(StoredLease { ttl_seconds, deadline_micros })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_was_stored() {
        for deadline_micros in [None, Some(-1), Some(i64::MAX)] {
            let lease = StoredLease { ttl_seconds: 60, deadline_micros };
            assert_eq!(StoredLease::decode(&lease.encode()), Some(lease));
        }
        for bytes in [&b""[..], b"1234567", b"123456789", b"12345678123456789"] {
            assert_eq!(StoredLease::decode(bytes), None);
        }
    }
}
