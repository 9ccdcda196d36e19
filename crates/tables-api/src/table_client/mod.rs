//! The client of rows.
//!
//! A [`TableClient`] opens a [`Table`]. A [`RowCommit`] collects the changes of several
//! rows, which are applied together. A [`Scanner`] reads rows, and resumes by itself when
//! the server restarts or its scanner expires. [`Table::transact`] reads rows and changes
//! them, and retries if they were changed meanwhile. A [`TableError`] says whether a commit
//! may have been applied.

mod client;
mod commit;
mod error;
mod row;
mod scanner;
mod transaction;

pub use client::{Table, TableClient};
pub use commit::RowCommit;
pub use error::{TableError, TableResult};
pub use row::{Cell, Row};
pub use scanner::{Rows, ScanOptions, Scanner};
pub use transaction::Transaction;
