//! How durable a commit is: the order in which it enters memory, the page
//! cache and the disk.

/// How durable a commit, or an entry of the log, must be when a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The commit has its txn, is visible to `Latest` scans and is queued for
    /// the log.
    Accepted,
    /// The commit is in the page cache: it survives a crash of the process.
    Written,
    /// The commit is synced: it survives a power failure.
    Durable,
}
