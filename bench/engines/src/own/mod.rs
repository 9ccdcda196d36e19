//! Measurements of features that only Stele's engine has: seeks in wide rows, reverse
//! scans, locality groups, reads during compaction, memory, tablets.

mod args;
pub mod compaction;
pub mod counting;
mod finding;
pub mod memory;
pub mod scans;
pub mod seeks;
pub mod tablets;

pub use args::{OwnArgs, Scale};
pub use finding::Finding;
