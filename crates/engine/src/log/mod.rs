//! The log: one durable sequence of records for all tables.
//!
//! A commit's payload goes through [`GroupLog`], where the first of many
//! waiting threads writes for all of them, into [`LogWriter`], which puts
//! checksummed records into preallocated segments. After a restart
//! [`LogReader`] gives the payloads back in order, or says that some are lost.
//! What a payload means is not known here. `docs/format-log.md` has the bytes.

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
