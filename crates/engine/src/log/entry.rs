//! What goes into the log and comes out of it again, whole. The log does not
//! know what the payload means.

use bytes::Bytes;

use super::record::PAYLOAD_BYTES_MAX;
use crate::error::{Error, Result};

/// One entry for the log.
#[derive(Clone, Debug)]
pub struct Entry {
    pub stream: u16,
    /// The entry's txn, or its index in a replicated log.
    pub index: u64,
    pub payload: Bytes,
}

impl Entry {
    /// Refuses what no log can hold.
    pub(super) fn check(&self) -> Result<()> {
        let (size, limit) = (self.payload.len(), PAYLOAD_BYTES_MAX);
        if size > limit {
            return Err(Error::TooLarge { what: "log entry", size, limit });
        }
        Ok(())
    }
}
