//! The stored state overlaid with the changes of a log entry that is being
//! applied.
//!
//! An [`Overlay`] (`entry`) collects the changes that the proposals of an entry
//! make (`write`) and shows later proposals of the same entry the state with these
//! changes (`view`). In the end the changes become one engine commit (`commit`).

mod commit;
mod entry;
mod view;
mod write;

pub use commit::FinishedEntry;
pub use entry::Overlay;
pub use view::{Bounds, key_bounds};
pub use write::Previous;
