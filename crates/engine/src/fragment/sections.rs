//! Reads the sections of a fragment file and verifies their checksums.

use std::path::Path;

use prost::Message;

use crate::error::{Error, Result};
use crate::fragment::footer::{FileTail, Footer, FragmentMeta, Section, TAIL_BYTES};
use crate::world::File;

/// Reads the tail and the footer, and checks that they are consistent.
pub(super) fn read_footer(file: &dyn File, path: &Path) -> Result<(Footer, FragmentMeta)> {
    let file_len = file.len().map_err(|error| Error::io("reading fragment", path, error))?;
    let Some(tail_at) = file_len.checked_sub(TAIL_BYTES as u64) else {
        return Err(Error::data_loss(path, 0, "the file is too short for a fragment"));
    };
    let mut tail = [0; TAIL_BYTES];
    read_at(file, path, &mut tail, tail_at)?;
    let tail = FileTail::parse(&tail, path, file_len)?;
    let section =
        Section { offset: tail.footer_offset, len: tail.footer_len, crc: tail.footer_crc };
    let bytes = read_section(file, path, &section, "footer")?;
    let footer = Footer::decode(bytes.as_slice()).map_err(|_| damaged(path, &section, "footer"))?;
    let meta = footer.meta(file_len, tail.hash).filter(|_| footer.sections_fit(section.offset));
    let meta = meta.ok_or_else(|| damaged(path, &section, "footer"))?;
    Ok((footer, meta))
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
    if crc32c::crc32c(&bytes) != section.crc {
        return Err(damaged(path, section, what));
    }
    Ok(bytes)
}

/// Reads exactly these bytes; a file that ends before them is damaged.
pub(super) fn read_at(file: &dyn File, path: &Path, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::data_loss(path, offset, "the file ends early"),
        _ => Error::io("reading fragment", path, error),
    })
}

/// Returns the error for a section that is not valid.
pub(super) fn damaged(path: &Path, section: &Section, what: &str) -> Error {
    Error::data_loss(path, section.offset, format!("damaged {what}"))
}
