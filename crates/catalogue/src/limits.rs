//! Limits of records, messages and requests.

use std::time::Duration;

/// The longest key. A key may be empty.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// The longest value. A value may be empty.
pub const VALUE_BYTES_MAX: usize = 32 << 20;
/// The largest message, in which the largest record fits with its cookie.
pub const MESSAGE_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// The longest vector in one message.
pub const VECTOR_MAX: usize = 100_000;
/// The maximum size of all records of one streamed request.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;
/// The overhead that is added to the size of a record of a streamed request.
pub const RECORD_OVERHEAD_BYTES: usize = 64;
/// The maximum size of all streamed requests that are being received.
pub const STREAMS_BYTES_MAX: usize = 512 << 20;
/// The size at which a reply message is sent: small enough that the client processes
/// one while the next is read.
pub const REPLY_BYTES: usize = 64 << 10;
/// The maximum age of a snapshot that several requests read; it is also released when
/// it is not used.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(3600);
/// The maximum number of pinned txns.
pub const PINS_MAX: usize = 1024;
