//! Embedded stores that hold the same records, each with one database for the catalogue
//! and plain keys and values, loaded in the order that suits it best.

pub mod lmdb;
mod measure;
mod rival;
#[cfg(feature = "rocksdb")]
pub mod rocks;

pub use measure::{load, measure, measure_rocks};
pub use rival::Rival;
use rival::fill;
