//! A member of the metastore, as the services see it.
//!
//! A [`Node`] (`lifecycle`) is a member's state and its part of the Raft group. A
//! write is proposed and answered once it is applied (`propose`). A read uses the
//! local state (`reader`), after a barrier if it must be linearizable. Background
//! work is done by `duties`: expiring leases, dropping history (`retention`) and
//! clearing alarms (`quota`). `purge` drops history on request, `clocks` provides
//! the timestamps of writes, and `admission` orders transactions that had a
//! conflict, oldest first.

mod admission;
mod clocks;
mod duties;
mod lifecycle;
mod propose;
mod purge;
mod quota;
mod reader;
mod retention;
mod settings;
mod status;

pub use admission::Attempt;
pub use lifecycle::Node;
pub use reader::Reader;
pub use retention::Retention;
pub use settings::{ExecuteLimits, NodeSettings};
pub use status::{Status, Usage};
