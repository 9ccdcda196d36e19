//! The state of a machine as members send it to each other: a description and
//! files that do not change. The content is the machine's own.

use bytes::Bytes;

use crate::error::Result;

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    pub name: String,
    pub bytes: u64,
}

/// The state as of one entry, to be sent. It is kept until this is dropped.
pub trait Checkpoint: Send + Sync {
    /// Returns the index of that entry.
    fn index(&self) -> u64;

    /// Returns what the receiver needs besides the files.
    fn description(&self) -> Bytes;

    fn files(&self) -> &[SnapshotFile];

    /// Fills `buffer` with the bytes of a file from `offset` on.
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// A state that is being received. Nothing counts until it is installed.
pub trait Staging: Send {
    /// Appends to a file. Files are written in order, each from start to end.
    fn write(&mut self, file: usize, bytes: &[u8]) -> Result<()>;

    /// Replaces the machine's state by this one, which is as of entry `applied`.
    /// After a crash, the machine has either the old or the new state.
    fn install(self: Box<Self>, applied: super::Position) -> Result<()>;
}
