//! Log entries. The log does not interpret the payload.

use bytes::Bytes;

use super::record::PAYLOAD_BYTES_MAX;
use crate::error::{Error, Result};

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub stream: u16,
    /// The entry's txn, or its index in a replicated log.
    pub index: u64,
    pub payload: Bytes,
}

impl LogEntry {
    /// Returns an error if the payload is too large for any log.
    pub(super) fn check(&self) -> Result<()> {
        let (size, limit) = (self.payload.len(), PAYLOAD_BYTES_MAX);
        if size > limit {
            return Err(Error::TooLarge { what: "log entry", size, limit });
        }
        Ok(())
    }
}
