//! Disk fragments: immutable, sorted files of the cells of one table and one locality
//! group. This module knows cell keys, but not tablets.
//!
//! A file consists of data blocks, an index over them, row filters, range tombstones,
//! and a footer with the metadata. Opening a file reads the footer; a point read then
//! costs one block. `docs/format-fragment.md` specifies the format.

pub(crate) mod block;
mod builder;
pub mod cache;
mod compression;
mod cursor;
#[cfg(test)]
mod damage;
mod estimate;
pub(crate) mod filter;
mod footer;
mod heat;
pub(crate) mod index;
mod position;
mod range_tombstones;
mod reader;
mod sections;
mod separators;
mod slot;
#[cfg(test)]
pub(crate) mod testing;
mod verify;
mod writer;

pub use crate::schema::Compression;
pub use cursor::{CursorOptions, FragmentCursor};
pub use filter::row_hash;
pub use footer::{FORMAT_VERSION, FragmentMeta};
pub use heat::{Heat, Warmed, Warmer};
pub use reader::Fragment;
pub use verify::{BlockInfo, VerifyReport};
pub use writer::{ENTRY_BYTES_MAX, FragmentOptions, FragmentWriter};
