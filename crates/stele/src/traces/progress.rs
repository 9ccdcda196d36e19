//! The progress of long commands.

pub use crate::progress::Progress;
