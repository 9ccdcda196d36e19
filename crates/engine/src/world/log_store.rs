//! A store of log objects that several servers share, such as a bucket. Requests are
//! started, and a callback reports the outcome.

use std::fmt;

use bytes::Bytes;

use super::Done;

/// The place of an object: the epoch of the server that writes the log, and a number.
/// Slots of a log are dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogSlot {
    pub epoch: u64,
    pub slot: u64,
}

impl fmt::Display for LogSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log/{}/{:020}", self.epoch, self.slot)
    }
}

/// The outcome of a conditional create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    /// There was an object already. It may be that of an earlier attempt.
    Exists,
}

/// A store of immutable objects. An object is visible whole or not at all, and what was
/// created is seen by every later read.
pub trait LogStore: Send + Sync {
    /// Creates an object unless there is one. After an error it may have been created, or
    /// be created later.
    fn create(&self, at: LogSlot, bytes: Bytes, done: Done<Created>);

    /// Reads an object; `None` if there is none.
    fn read(&self, at: LogSlot, done: Done<Option<Bytes>>);

    /// Deletes an object. Succeeds if there is none.
    fn delete(&self, at: LogSlot, done: Done<()>);

    /// Lists the slots of a log, in ascending order. For collection only: neither the
    /// start nor the end of a log is ever derived from a listing.
    fn list(&self, epoch: u64, done: Done<Vec<u64>>);

    /// Returns the address for messages and errors, without credentials.
    fn address(&self) -> String;
}
