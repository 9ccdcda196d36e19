//! What one record, one message and one request may hold.

use std::time::Duration;

/// The longest key. May be empty.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// The longest value. May be empty.
pub const VALUE_BYTES_MAX: usize = 32 << 20;
/// The largest message: the largest record with its cookie fits.
pub const MESSAGE_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// The longest vector in one message.
pub const VECTOR_MAX: usize = 100_000;
/// All records of one streamed request.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;
/// What a record of a streamed request counts beyond its bytes.
pub const RECORD_OVERHEAD_BYTES: usize = 64;
/// All streamed requests that are being received.
pub const STREAMS_BYTES_MAX: usize = 512 << 20;
/// A reply message is sent when it has reached this size: small enough that the
/// client works on one while the next is read.
pub const REPLY_BYTES: usize = 64 << 10;
/// What several requests read as it was at one moment is held for so long at
/// most, and only while it is used.
pub const MOMENT_AGE_MAX: Duration = Duration::from_secs(3600);
/// Txns that are held at the same time.
pub const PINS_MAX: usize = 1024;
