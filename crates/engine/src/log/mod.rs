//! The write-ahead log: one durable sequence of records for all tables.
//!
//! Entries pass through [`GroupLog`], where one waiting thread writes for all
//! of them, to [`LogWriter`], which appends checksummed records to preallocated
//! segments. After a restart, [`LogReader`] returns the payloads in order, or
//! reports data loss. The log does not interpret payloads. `docs/format-log.md`
//! specifies the format.

mod callbacks;
mod counters;
mod end;
mod entry;
mod group;
mod options;
mod parts;
mod pool;
mod reader;
mod record;
mod room;
mod segment;
mod settle;
mod survey;
mod tail;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use callbacks::Callback;
pub use counters::LogStats;
pub use end::{LogEnd, SegmentInfo, Torn};
pub use entry::Entry;
pub use group::{GroupLog, Level, LogEvent, Promise};
pub use options::LogOptions;
pub use reader::{ItemKind, LogItem, LogReader};
pub use record::PAYLOAD_BYTES_MAX;
pub use settle::{Extent, settle};
pub use survey::{LogSurvey, RecordInfo, Seen};
pub use writer::LogWriter;
