//! Reads the metadata of a fragment file and verifies its checksums.

use std::path::Path;

use prost::Message;

use crate::error::{Error, Result};
use crate::fragment::footer::{FileTail, Footer, FragmentMeta, Section, TAIL_BYTES};
use crate::world::File;

/// Metadata up to this size is read at once. Of a larger one only the footer and the
/// range tombstones are read when the file is opened.
const READ_AT_ONCE_BYTES_MAX: u64 = 4 << 20;

/// The end of a file in memory: at least its footer, usually everything after its
/// blocks.
pub(super) struct FileEnd {
    start: u64,
    bytes: Vec<u8>,
}

impl FileEnd {
    fn read(file: &dyn File, path: &Path, start: u64, end: u64) -> Result<FileEnd> {
        let mut bytes = vec![0; (end - start) as usize];
        read_at(file, path, &mut bytes, start)?;
        Ok(FileEnd { start, bytes })
    }

    /// Returns the bytes of a section if they were read.
    pub fn section(&self, section: &Section) -> Option<&[u8]> {
        let start = usize::try_from(section.offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(section.len as usize)?)
    }

    /// Extends it to start at `start`, if that is possible.
    fn extend(&mut self, file: &dyn File, path: &Path, start: u64) {
        let end = self.start + self.bytes.len() as u64;
        if start < self.start && end - start <= READ_AT_ONCE_BYTES_MAX {
            // What is not read now is read when it is needed, with its own error.
            if let Ok(mut more) = FileEnd::read(file, path, start, self.start) {
                more.bytes.append(&mut self.bytes);
                *self = more;
            }
        }
    }
}

/// Reads the metadata of a file and checks that it is consistent. If `meta_bytes`, its
/// size, is known, one read suffices; otherwise the footer is read first.
pub(super) fn read_metadata(
    file: &dyn File,
    path: &Path,
    file_len: u64,
    meta_bytes: Option<u64>,
) -> Result<(Footer, FragmentMeta, FileEnd)> {
    let Some(tail_at) = file_len.checked_sub(TAIL_BYTES as u64) else {
        return Err(Error::data_loss(path, 0, "the file is too short for a fragment"));
    };
    let known = meta_bytes.and_then(|bytes| file_len.checked_sub(bytes));
    let at_once =
        known.filter(|&start| start < tail_at && file_len - start <= READ_AT_ONCE_BYTES_MAX);
    let read_from = |start| FileEnd::read(file, path, start, file_len);
    let mut end = match at_once.map(read_from) {
        Some(Ok(end)) => end,
        Some(Err(error @ Error::NotLocal(_))) => return Err(error),
        // Part of it may be readable.
        Some(Err(_)) | None => read_from(tail_at)?,
    };
    let tail = end.bytes.last_chunk().expect("the tail was read");
    let tail = FileTail::parse(tail, path, file_len)?;
    let section =
        Section { offset: tail.footer_offset, len: tail.footer_len, crc: tail.footer_crc };
    if end.section(&section).is_none() {
        end = read_from(section.offset)?;
    }
    let bytes = end.section(&section).ok_or_else(|| damaged(path, &section, "footer"))?;
    check_section(bytes, path, &section, "footer")?;
    let footer = Footer::decode(bytes).map_err(|_| damaged(path, &section, "footer"))?;
    let meta = footer.meta(file_len, tail.hash).filter(|_| footer.sections_fit(section.offset));
    let meta = meta.ok_or_else(|| damaged(path, &section, "footer"))?;
    end.extend(file, path, meta.data_bytes);
    Ok((footer, meta, end))
}

/// Reads a section that lies within the file, and verifies its checksum.
pub(super) fn read_section(
    file: &dyn File,
    path: &Path,
    section: &Section,
    what: &str,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; section.len as usize];
    read_at(file, path, &mut bytes, section.offset)?;
    check_section(&bytes, path, section, what)?;
    Ok(bytes)
}

/// Verifies the checksum of a section.
pub(super) fn check_section(
    bytes: &[u8],
    path: &Path,
    section: &Section,
    what: &str,
) -> Result<()> {
    let sound = crc32c::crc32c(bytes) == section.crc;
    if sound { Ok(()) } else { Err(damaged(path, section, what)) }
}

/// Reads exactly these bytes; a file that ends before them is damaged.
pub(super) fn read_at(file: &dyn File, path: &Path, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::data_loss(path, offset, "the file ends early"),
        // A file outside the directory is opened without a request.
        std::io::ErrorKind::NotFound => Error::data_loss(path, 0, "the file is missing"),
        _ => Error::io("reading fragment", path, error),
    })
}

/// Returns the error for a section that is not valid.
pub(super) fn damaged(path: &Path, section: &Section, what: &str) -> Error {
    Error::data_loss(path, section.offset, format!("damaged {what}"))
}
