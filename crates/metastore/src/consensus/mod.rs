//! Consensus: proposals become entries of one replicated log, and every member
//! applies the same entries in the same order. The only module that uses the
//! Raft library.
//!
//! [`RaftGroup::propose`] adds a proposal to the queue (`group`, `queue`). The
//! group's thread takes all queued proposals as one entry (`leader`). The Raft
//! library appends the entry with one write and one sync (`log`) and then has the
//! [`Machine`] apply it (`apply`); the machine's answers go directly to the
//! `callers`. Entries are purged from the log once the machine reports that they
//! are on disk outside it. `record` encodes entries and votes, `replay` reads
//! them back at open (into `entries`), and `head` stores where the log begins.
//!
//! Each group runs on a single thread of its own: with one voter there is
//! nothing to wait for but the disk, so switching threads would only add cost.
//! `docs/format-raft-log.md` specifies the format.

mod apply;
mod callers;
mod entries;
mod group;
mod head;
mod leader;
mod log;
mod machine;
mod network;
mod queue;
mod record;
mod replay;
mod settings;
mod types;

pub use group::{GroupStatus, RaftGroup};
pub use machine::{Committed, Machine, Position};
pub use settings::GroupSettings;
