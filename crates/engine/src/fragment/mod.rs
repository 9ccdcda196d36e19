//! Disk fragments: immutable, sorted files of the cells of one table and one locality
//! group. This module knows cell keys, but not tablets.
//!
//! A file consists of data blocks, an index over them, row filters, range tombstones,
//! and a footer with the metadata. Opening a file reads everything after the blocks; a
//! point read then costs one block. `docs/format-fragment.md` specifies the format.
//!
//! Blocks, index and filters are in the block cache (`cache`), which may evict any of
//! them; a fragment keeps pointers to those in memory (`slot`, `parts`). The blocks of
//! in-memory groups stay there (`kept`). The file itself
//! is open only while it is used (`handles`).

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
mod handles;
mod heat;
pub(crate) mod index;
mod kept;
mod parts;
mod position;
mod range_tombstones;
mod read_ahead;
mod reader;
mod sections;
mod slot;
#[cfg(test)]
pub(crate) mod testing;
mod verify;
mod writer;

pub use crate::schema::Compression;
pub use cursor::{CursorOptions, FragmentCursor};
pub use filter::row_hash;
pub use footer::{FORMAT_VERSION, FragmentMeta};
pub use handles::{FileHandle, FileHandles};
pub use heat::{Heat, Warmed, Warmer};
pub use read_ahead::ReadAhead;
pub use reader::{Fragment, KnownSize, SIZE_DIFFERS};
pub use verify::{BlockInfo, VerifyReport};
pub use writer::{ENTRY_BYTES_MAX, FragmentOptions, FragmentWriter};
