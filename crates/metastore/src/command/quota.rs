//! Quotas of prefixes.

use super::check::within;
use crate::error::{Error, Result};

/// The maximum length of a prefix with a quota.
pub const QUOTA_PREFIX_BYTES_MAX: usize = 4096;

/// The limits of the keys with a prefix; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub keys_max: i64,
    /// Bytes of keys and values.
    pub bytes_max: i64,
}

/// Refuses a quota without a limit, with a negative one, or with a prefix that
/// is too long. `None` removes a quota.
pub fn check_quota(prefix: &[u8], quota: Option<&Quota>) -> Result<()> {
    within("bytes of a prefix with a quota", prefix.len(), QUOTA_PREFIX_BYTES_MAX)?;
    let Some(Quota { keys_max, bytes_max }) = quota else { return Ok(()) };
    if *keys_max < 0 || *bytes_max < 0 {
        return Err(Error::Malformed("a quota is negative"));
    }
    if *keys_max == 0 && *bytes_max == 0 {
        return Err(Error::Malformed("a quota limits neither keys nor bytes"));
    }
    Ok(())
}
