//! Tests of the log as a whole: what the writer writes is what the reader
//! returns, on a disk that fails on demand.

mod damage;
mod faulty_disk;
mod full;
mod group;
mod lifetime;
mod model;
mod test_log;

pub use self::test_log::{TestLog, entry, is_data_loss, payload};
