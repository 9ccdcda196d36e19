//! The rows of tablets in a cluster: what the engine's config has of a tablet, and who
//! owns it. Those of META tablets are keys of the coordinator (`root_rows`).

mod owned_row;
mod root_rows;

pub use owned_row::{Holder, LogStart, OwnedRow, Owner};
pub use root_rows::{RootRows, StoredRow};
