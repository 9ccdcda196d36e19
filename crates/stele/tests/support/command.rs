//! Runs the `stele` binary as people and scripts do.

use std::process::{Command, Output, Stdio};

/// Variables that would change what a command does.
const VARIABLES: [&str; 15] = [
    "RUST_LOG",
    "BIGTABLE_EMULATOR_HOST",
    "STELE_ENDPOINT",
    "STELE_CREDS",
    "STELE_PROJECT",
    "STELE_INSTANCE",
    "STELE_NAMES",
    "STELE_AUTH",
    "STELE_AUTH_DIR",
    "STELE_DATA",
    "STELE_TOKEN_FILE",
    "STELE_METASTORE",
    "STELE_HTTP",
    "STELE_SERVER",
    "STELE_CONTEXT",
];

/// Returns a command of the binary without standard input.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    // Contexts of whoever runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    // Servers that run side by side cannot share a port.
    command.env("STELE_METASTORE_PORT", "off").env("STELE_DNS_PORT", "off");
    command.args(args).stdin(Stdio::null());
    command
}

/// Returns the one-line error of a command that must be rejected.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty() && error.starts_with("stele: "), "{error}");
    error
}

/// A server that commands are run against.
pub trait Commands {
    /// Returns a command that uses this server.
    fn command(&self, args: &[&str]) -> Command;

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Returns the output of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command that must exit with this code.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}
