//! The Prometheus text format (version 0.0.4), for every metrics page of the
//! server. Values are kept elsewhere, as plain atomics; a page reads them when it
//! is requested and writes them with [`Text`].
//!
//! ```
//! use stele_metrics::{Kind, Text};
//!
//! let mut text = Text::default();
//! text.gauge("queue_length", "Requests in the queue.", 3);
//! text.head("requests_total", Kind::Counter, "Requests by method.");
//! text.sample("requests_total", &[("method", "Get")], 7);
//! let lines = [
//!     "# HELP queue_length Requests in the queue.",
//!     "# TYPE queue_length gauge",
//!     "queue_length 3",
//!     "# HELP requests_total Requests by method.",
//!     "# TYPE requests_total counter",
//!     "requests_total{method=\"Get\"} 7",
//! ];
//! assert!(text.into_string().lines().eq(lines));
//! ```
#![forbid(unsafe_code)]

mod text;

pub use text::{CONTENT_TYPE, Kind, Text};
