//! The bytes of a manifest: a header and checksummed records.

use std::path::Path;

use super::LoadedManifest;
use crate::config::Configs;
use crate::config::encoding::{decode_batch, decode_snapshot, encode_snapshot};
use crate::error::{Error, Result};

pub(super) const MAGIC: &[u8; 8] = b"STELEMAN";
/// The format version that is written. Earlier ones are read.
pub(super) const VERSION: u32 = 6;
/// The first version with ids of tablets and with units.
const VERSION_OF_TABLETS: u32 = 4;
const HEADER_BYTES: usize = 16;
/// Size of a record's length, checksum and kind.
pub(super) const RECORD_HEADER_BYTES: usize = 9;
pub(super) const KIND_SNAPSHOT: u8 = 1;
pub(super) const KIND_BATCH: u8 = 2;
/// Written when the store is closed: everything before it is synced, so damage
/// to it is not mistaken for an interrupted edit.
pub(super) const KIND_END: u8 = 3;

/// Encodes a manifest that consists of a snapshot alone.
pub(super) fn encode_file(configs: &Configs) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    push_record(&mut bytes, KIND_SNAPSHOT, &encode_snapshot(configs));
    bytes
}

pub(super) fn push_record(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a manifest record is under 4 GiB");
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(payload);
}

/// Returns the kind, payload and end of the record at `at`, if it is complete
/// and valid.
fn record_at(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let header: &[u8; RECORD_HEADER_BYTES] =
        bytes.get(at..at + RECORD_HEADER_BYTES)?.try_into().ok()?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let checksum = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let kind = header[8];
    let start = at + RECORD_HEADER_BYTES;
    let payload = bytes.get(start..start.checked_add(length)?)?;
    let valid = matches!(kind, KIND_SNAPSHOT | KIND_BATCH | KIND_END)
        && crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload) == checksum;
    valid.then_some((kind, payload, start + length))
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<LoadedManifest> {
    let (mut loaded, version) = read(path, bytes)?;
    if version < VERSION_OF_TABLETS {
        loaded.configs.infer_units();
    }
    Ok(loaded)
}

/// Reads a manifest as it was written, and its format version.
fn read(path: &Path, bytes: &[u8]) -> Result<(LoadedManifest, u32)> {
    let damaged = |at: usize, what: &str| Err(Error::data_loss(path, at as u64, what));
    let length = bytes.len() as u64;
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return damaged(0, "the header of the manifest is truncated");
    };
    let (fields, checksum) = header.split_at(HEADER_BYTES - 4);
    if !fields.starts_with(MAGIC) || crc32c::crc32c(fields).to_le_bytes() != checksum {
        return damaged(0, "the header of the manifest is damaged");
    }
    let found = u32::from_le_bytes(fields[8..12].try_into().expect("four bytes"));
    if found > VERSION {
        return Err(Error::NewerFormat { path: path.to_path_buf(), found, known: VERSION });
    }
    let Some((KIND_SNAPSHOT, snapshot, mut at)) = record_at(bytes, HEADER_BYTES) else {
        return damaged(HEADER_BYTES, "the snapshot of the manifest is damaged");
    };
    let mut configs = decode_snapshot(snapshot)
        .map_err(|what| Error::data_loss(path, HEADER_BYTES as u64, what))?;
    while at < bytes.len() {
        let Some((kind, payload, end)) = record_at(bytes, at) else {
            // Every edit is synced before the next is written, so only the last
            // record can be torn.
            if (at + 1..bytes.len()).any(|later| record_at(bytes, later).is_some()) {
                return damaged(
                    at,
                    "a record of the manifest is damaged, but a later one is valid",
                );
            }
            return Ok((
                LoadedManifest { configs, bytes: length, torn_at: Some(at as u64) },
                found,
            ));
        };
        if kind == KIND_END {
            at = end;
            continue;
        }
        if kind != KIND_BATCH {
            return damaged(at, "the manifest has two snapshots");
        }
        configs = decode_batch(payload)
            .and_then(|(revision, edits)| {
                let next = configs
                    .edited(revision.wrapping_sub(1), &edits)
                    .map_err(|error| error.to_string())?;
                Ok(next)
            })
            .map_err(|what| Error::data_loss(path, at as u64, what))?;
        at = end;
    }
    Ok((LoadedManifest { configs, bytes: length, torn_at: None }, found))
}
