//! Promises about whole processes: each test runs this binary again as a child, which
//! is killed or aborts.
#![forbid(unsafe_code)]

mod kill;
mod panics;

use std::process::Command;

/// Returns a command that runs one test of this binary, named by its path.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--exact", test, "--nocapture"]);
    command
}
