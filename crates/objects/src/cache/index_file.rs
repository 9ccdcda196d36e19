//! The index of the cache, saved when it is closed. It is removed when the cache is
//! opened: after a crash there is none, and the headers of the slots are read instead.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::format::{HEADER_BYTES, Header};
use super::private;

const FILE: &str = "index";
const ENTRY_BYTES: usize = 4 + HEADER_BYTES;

/// Saves the index.
pub fn save(dir: &Path, headers: &[(u32, Header)]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(headers.len() * ENTRY_BYTES + 4);
    for (slot, header) in headers {
        bytes.extend_from_slice(&slot.to_le_bytes());
        bytes.extend_from_slice(&header.encode());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let unfinished = dir.join("index.new");
    let mut file = private().write(true).create(true).truncate(true).open(&unfinished)?;
    file.write_all(&bytes)?;
    fs::rename(unfinished, dir.join(FILE))
}

/// Reads and removes the index. `None` if there is none, or it is damaged.
pub fn take(dir: &Path) -> io::Result<Option<Vec<(u32, Header)>>> {
    let path = dir.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    fs::remove_file(&path)?;
    Ok(decode(&bytes))
}

fn decode(bytes: &[u8]) -> Option<Vec<(u32, Header)>> {
    let (entries, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(entries) != u32::from_le_bytes(*crc) || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let entry = |entry: &[u8]| {
        let (slot, header) = entry.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*slot), Header::decode(header.try_into().ok()?)?))
    };
    entries.chunks_exact(ENTRY_BYTES).map(entry).collect()
}
