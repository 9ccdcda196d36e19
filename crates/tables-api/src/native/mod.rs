//! The service of rows (`proto/tables_data.proto`): atomic commits of several rows, and
//! scans. docs/native-tables.md states what it promises.
//!
//! - `service`: the calls
//! - `rules`: which tables are served, and which mutations they accept
//! - `packed`: checks of packed commits
//! - `apply`: the commit path
//! - `predicate`: what a scan returns
//! - `scan`: the blocks of a scan
//! - `scanner`: one scanner; its last block, in case an answer was lost
//! - `scanners`: all of them, the least recently used of which expire
//! - `schema_version`: the fingerprint of a schema

mod apply;
mod packed;
mod predicate;
mod rules;
mod scan;
mod scanner;
mod scanners;
mod schema_version;
mod service;

pub use rules::{AllTables, MutationCheck, ServedTable, TableRules};
pub use scanners::ScannerLimits;
pub use service::Native;
