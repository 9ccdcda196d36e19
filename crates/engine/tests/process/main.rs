//! Promises about whole processes: each test runs this binary again as a child, which
//! is killed or aborts.
#![forbid(unsafe_code)]

#[path = "../support/child.rs"]
mod child;
mod kill;
mod panics;
