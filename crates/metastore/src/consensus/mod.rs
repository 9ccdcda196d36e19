//! Consensus: proposals become entries of one replicated log, and every member
//! applies the same entries in the same order. The only module that uses the
//! Raft library.
//!
//! [`RaftGroup::propose`] adds a proposal to the queue (`group`, `queue`), and
//! all queued proposals become one entry. A group of one (`leader`) writes one
//! entry at a time on a single thread: there is nothing to wait for but the disk.
//! A member of a group of several (`member`) has up to 64 in flight, forwards them
//! to the leader if it is another, and confirms the leader for readers.
//!
//! The Raft library appends entries (`log`, written by `disk`) and has the
//! [`Machine`] apply those that are committed (`apply`); the machine's answers go
//! directly to the `callers`. Entries are purged from the log once the machine
//! reports that they are on disk outside it. `record` encodes entries and votes,
//! `replay` reads them back at open (into `entries`), and `head` stores where the
//! log begins. Members exchange each `message` over a [`Transport`] (`network`);
//! `handover` moves leadership, `inquiry` asks a certain member.
//! `runtime` and `watch`
//! make runs repeatable, and `rules` holds the violations that the simulator detects.
//!
//! `docs/format-raft-log.md` specifies the format, `docs/metastore-cluster.md` the
//! behaviour of several members.

mod absence;
mod apply;
mod callers;
mod change;
mod disk;
mod entries;
mod group;
mod handover;
mod head;
mod incoming;
mod inquiry;
mod install;
mod leader;
mod log;
mod machine;
mod member;
mod membership;
mod message;
mod network;
mod outbox;
mod outgoing;
mod queue;
mod reconfigure;
mod record;
mod replay;
mod rules;
mod runtime;
mod settings;
mod snapshot;
mod transport;
mod types;
mod watch;

pub use change::MemberChange;
pub use disk::{LogIo, SyncTimes};
pub use group::{GroupStatus, Leadership, RaftGroup};
pub(crate) use log::RaftLog;
pub use machine::{Committed, Machine, Position};
pub use membership::{Member, MemberRecord};
pub(crate) use message::members as members_message;
pub use rules::Rules;
pub use settings::{GroupSettings, GroupThreads, PeerSettings, Published};
pub use snapshot::{Checkpoint, SnapshotFile, Staging};
pub use transport::{Inbox, Lane, Transport, Unreached};
