//! The timeouts between the server and its clients. Whatever the server waits for (a
//! handshake, the rest of a request, space for a response) must arrive in time; an idle
//! connection has no timeout.

use std::sync::LazyLock;
use std::time::Duration;

/// An environment variable with a factor for every timeout below. For tests only, so that
/// they need not wait (docs/testing.md).
const SCALE: &str = "STELE_TEST_TIME_SCALE";

pub struct Timeouts {
    /// From accepting a connection to its first byte.
    pub first_byte: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the first byte to the end of the HTTP/2 preface.
    pub preface: Duration,
    /// From the first byte to the first request.
    pub first_request: Duration,
    /// For the head of an HTTP/1 request.
    pub head: Duration,
    /// For a request body before a minimum rate applies.
    pub body: Duration,
    /// The same while other requests wait for its memory.
    pub body_contended: Duration,
    /// For a client to resume reading: no flow-control window, or a full socket buffer.
    pub stall: Duration,
    /// The same while other responses wait for the memory that it holds.
    pub stall_contended: Duration,
    /// For a client that does not read, from the deadline of its call to the reset of the
    /// stream.
    pub deadline_grace: Duration,
    /// Between pings on a silent connection, and for their replies.
    pub ping: Duration,
    pub ping_reply: Duration,
    /// For the admission of a write while memory is full, the log is behind or chains are
    /// too long.
    pub admission: Duration,
}

impl Timeouts {
    fn scaled(scale: f64) -> Timeouts {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into()).mul_f64(scale);
        Timeouts {
            first_byte: seconds(60),
            handshake: seconds(20),
            preface: seconds(10),
            first_request: seconds(300),
            head: seconds(30),
            body: seconds(30),
            body_contended: seconds(1),
            stall: seconds(60),
            stall_contended: seconds(2),
            deadline_grace: seconds(2),
            ping: seconds(60),
            ping_reply: seconds(20),
            admission: seconds(30),
        }
    }
}

/// Returns the timeouts of this process.
pub fn timeouts() -> &'static Timeouts {
    static TIMEOUTS: LazyLock<Timeouts> = LazyLock::new(|| {
        let scale = std::env::var(SCALE).ok().and_then(|scale| scale.parse::<f64>().ok());
        Timeouts::scaled(scale.filter(|scale| (1e-3..=1e3).contains(scale)).unwrap_or(1.0))
    });
    &TIMEOUTS
}
