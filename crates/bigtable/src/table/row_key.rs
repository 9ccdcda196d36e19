//! The keys that rows can have: 1 byte to 4 KiB.

use crate::error::{Error, Result};

/// The maximum length of a row key, and thus of a split, in bytes.
pub const ROW_KEY_BYTES_MAX: usize = 4 << 10;

/// Rejects keys that no row can have.
pub fn check_row_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("Row keys must be non-empty"));
    }
    check_row_key_length(key)
}

/// Rejects keys that are too long. The bounds of a range may be empty.
pub fn check_row_key_length(key: &[u8]) -> Result<()> {
    let size = key.len();
    if size > ROW_KEY_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "Row key of {size} bytes exceeds the limit of {ROW_KEY_BYTES_MAX}"
        )));
    }
    Ok(())
}
