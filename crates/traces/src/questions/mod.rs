//! The queries of a table of traces that are made by the HTTP API and by the
//! command line alike. Each one resolves the commits it is about, reads what it needs
//! from the `store` and applies the pure functions of `analysis`; its caller only
//! parses the request and formats the answer.
//!
//! `commits` resolves names of commits to windows and ranges; `bisect` finds what broke
//! a trace; `diff` compares two commits; `steps` lists lasting changes of numbers;
//! `triage` joins digests with their labels and finds suspects of untriaged digests.

mod bisect;
mod commits;
mod diff;
mod steps;
mod triage;

pub use bisect::{Bisect, Cause};
pub use commits::{commit, range, window};
pub use diff::{Differences, LOOKBACK, diff};
pub use steps::{Steps, TraceStep, steps};
pub use triage::{blame, blamed_commits, labelled, labels};
