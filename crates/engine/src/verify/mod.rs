//! Check and dump of a store's files, for operator tools.
//!
//! [`check`] reads a whole store that is not in use and collects every problem: of the
//! config (`chains`), of the `files` that it names, and of the log (`commits`);
//! [`check_with`] reads files outside the directory.
//! [`LogDump`] and [`FragmentDump`] show the contents of single files. Nothing but the
//! lock file is ever written. [`TableCheck`] checks one table of an open store.

mod chains;
mod check;
mod commits;
mod files;
mod fragment_dump;
mod log_dump;
mod report;
mod table_check;

pub use check::{check, check_with};
pub use fragment_dump::{EntryInfo, FragmentDump};
pub use log_dump::{LogDump, LogLine, MutationInfo};
pub use report::{FragmentReport, Garbage, LogReport, Problem, Report, TornWrite};
pub use table_check::{CheckedFile, TableCheck};
