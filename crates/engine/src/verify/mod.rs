//! Offline check and dump of a store's files, for operator tools.
//!
//! [`check`] reads a whole store and collects every problem; [`LogDump`] and
//! [`FragmentDump`] show the contents of single files. Nothing here needs a running
//! store, and nothing but the lock file is ever written.

mod chains;
mod check;
mod commits;
mod fragment_dump;
mod log_dump;
mod report;

pub use check::check;
pub use fragment_dump::{EntryInfo, FragmentDump};
pub use log_dump::{LogDump, LogLine, MutationInfo};
pub use report::{FragmentReport, Garbage, LogReport, Problem, Report, TornWrite};
