//! Limits of vectors, keys and values, checked before anything is read or written.

use crate::error::{Error, Result};
use crate::fid::Fid;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Rejects an empty vector.
pub fn check_vector(len: usize) -> Result<()> {
    if len == 0 {
        return Err(Error::invalid("the vector is empty"));
    }
    Ok(())
}

pub fn check_key(key: &[u8]) -> Result<()> {
    check_size("a key", key.len(), KEY_BYTES_MAX)
}

pub fn check_value(value: &[u8]) -> Result<()> {
    check_size("a value", value.len(), VALUE_BYTES_MAX)
}

fn check_size(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size > limit {
        return Err(Error::TooLarge { what, size, limit });
    }
    Ok(())
}

pub fn check_fids(fids: &[bytes::Bytes]) -> Result<Vec<Fid>> {
    check_vector(fids.len())?;
    fids.iter().map(|fid| Fid::from_wire(fid)).collect()
}
