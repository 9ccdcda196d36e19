//! The write-ahead log: one durable sequence of records for all tables.
//!
//! Entries pass through [`GroupLog`], where waiting threads write for all of
//! them, two groups at a time, to [`LogWriter`], which appends checksummed
//! records to preallocated segments. After a restart, [`LogReader`] returns the payloads in order, or
//! reports data loss. The log does not interpret payloads. `docs/format-log.md`
//! specifies the format. The log of a server in a cluster is in [`objects`] instead.

mod assembler;
mod callbacks;
mod counters;
mod directory;
mod end;
mod entry;
mod group;
pub mod objects;
mod options;
mod pool;
mod reader;
mod record;
mod recovered;
mod segment;
mod space;
mod survey;
mod tail;
#[cfg(test)]
mod tests;
mod vectored;
mod window;
mod writer;

pub use callbacks::Callback;
pub use counters::LogStats;
pub use end::{LogEnd, SegmentInfo, Torn};
pub use entry::LogEntry;
pub use group::{GroupLog, LogEvent, LogReservation};
pub use options::LogOptions;
pub use reader::{ItemKind, LogItem, LogReader};
pub use record::PAYLOAD_BYTES_MAX;
pub use recovered::{Extent, make_durable};
pub use survey::{LogSurvey, RecordInfo, SurveyItem};
pub use writer::LogWriter;
