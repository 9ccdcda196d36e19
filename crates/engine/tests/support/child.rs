//! Runs one test of the current binary again, in a child process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A child that runs longer than this hangs.
const CHILD_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a command that runs the test with this path.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--exact", test, "--nocapture"]);
    command
}

/// Runs a test silently with an environment variable set, and returns how the process
/// ended.
pub fn run(test: &str, variable: &str, value: &str) -> ExitStatus {
    let mut child = command(test)
        .env(variable, value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            return status;
        }
        if begun.elapsed() > CHILD_TIMEOUT {
            child.kill().expect("the child is ours");
            panic!("{test}, {value}: the process hangs");
        }
        std::thread::yield_now();
    }
}

/// Returns whether a process aborted.
pub fn is_abort(status: ExitStatus) -> bool {
    const SIGABRT: i32 = 6;
    status.signal() == Some(SIGABRT)
}
