//! Line plots over time, written as SVG.
#![forbid(unsafe_code)]

mod plot;

pub use plot::{Line, Plot};
