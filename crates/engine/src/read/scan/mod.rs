//! Scans: read the cells of a table in order, in batches.
//!
//! [`ScanSpec`] says what to read. [`Scan`] reads it batch by batch, over the
//! `ranges` of rows that are left; `reverse` reads rows in descending order.

mod batches;
mod ranges;
mod reverse;
mod spec;

pub use batches::Scan;
pub use spec::{BatchEnd, BatchLimits, RowMode, ScanSpec, View};
