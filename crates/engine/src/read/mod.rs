//! Reads: scans in batches ([`Scan`]), single rows (`point`), and a row's first
//! cell by its remembered place ([`Place`]).
//!
//! A read chooses a txn, for a scan by holding a [`Snapshot`], and a version of
//! the table. It collects cursors over the fragments that may hold the rows
//! (`source`), and `merge` turns them into the cells that are visible.

mod place;
mod point;
mod row;
mod scan;
mod snapshot;
mod source;

pub use place::{FirstCell, Place};
pub use scan::{BatchEnd, BatchLimits, RowMode, Scan, ScanSpec, View};
pub use snapshot::{Snapshot, Snapshots};
