//! The file of slots.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use super::format::{self, BLOCK_BYTES, HEADER_BYTES, Header, SLOT_BYTES};
use super::private;

pub struct Slab {
    file: File,
    /// Whether the file was there already, with contents of this cluster.
    kept: bool,
}

impl Slab {
    /// Opens the slab of a cluster, with at most `slots_max` slots.
    pub fn open(path: &Path, cluster: &str, slots_max: usize) -> io::Result<Slab> {
        let file = private().read(true).write(true).create(true).truncate(false).open(path)?;
        let expected = format::first_block(cluster);
        let mut found = vec![0; expected.len()];
        let kept = match file.read_exact_at(&mut found, 0) {
            Ok(()) => found == expected,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(error),
        };
        if !kept {
            file.set_len(0)?;
            file.write_all_at(&expected, 0)?;
        }
        let bytes_max = offset(slots_max as u32);
        if file.metadata()?.len() > bytes_max {
            file.set_len(bytes_max)?;
        }
        Ok(Slab { file, kept })
    }

    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Reads the headers of all slots.
    pub fn headers(&self) -> io::Result<Vec<(u32, Header)>> {
        let bytes = self.file.metadata()?.len().saturating_sub(BLOCK_BYTES);
        let slots = bytes.div_ceil(SLOT_BYTES) as u32;
        let mut headers = Vec::new();
        for slot in 0..slots {
            let mut encoded = [0; HEADER_BYTES];
            if self.file.read_exact_at(&mut encoded, offset(slot)).is_ok() {
                headers.extend(Header::decode(&encoded).map(|header| (slot, header)));
            }
        }
        Ok(headers)
    }

    pub fn read(&self, slot: u32, range: Range<usize>) -> io::Result<Bytes> {
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, offset(slot) + BLOCK_BYTES + range.start as u64)?;
        Ok(bytes.into())
    }

    /// Writes a slot. Nothing is synced: after a crash the checksum decides.
    pub fn write(&self, slot: u32, header: &Header, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset(slot) + BLOCK_BYTES)?;
        self.file.write_all_at(&header.encode(), offset(slot))
    }
}

fn offset(slot: u32) -> u64 {
    BLOCK_BYTES + u64::from(slot) * SLOT_BYTES
}
