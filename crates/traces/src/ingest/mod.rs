//! Reads the output of test runners and benchmarks.
//!
//! `json` is the native format; `junit` reads test reports, `criterion` and
//! `google_benchmark` measurements; `git` provides the order of commits. Readers handle
//! untrusted bytes: they reject what they do not understand and never guess. `report`
//! detects the format of a file and holds what was read from it; `files` reads many
//! files while a store stores their results; `seen` holds the params that they have in
//! common.

mod criterion;
mod files;
pub mod git;
mod google_benchmark;
mod json;
mod junit;
mod report;
mod seen;

pub use criterion::read_directory as read_criterion_directory;
pub use files::{Files, Ingested};
pub use junit::{named_digests, passing_digests};
pub use report::{Format, Reader, Report, guess, last_of_each, time_micros};
use report::{cut, tolerant};
