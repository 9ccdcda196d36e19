//! The `stele` binary: parses the command line, runs one command and returns an exit code.
//!
//! | module | commands |
//! |---|---|
//! | `serve` | `serve`, `emulator`: a server with all services |
//! | `table`, `rows` | `table`, `read`, `lookup`, `set`, `delete`, `count`: any Bigtable |
//! | `cluster` | `cluster`: several servers with the same tables |
//! | `resources` | `instance`, `profile`, `backup`, `view`: any Bigtable |
//! | `transfer`, `demo` | `import`, `export`; `demo`: tables with data to look at |
//! | `catalogue`, `name`, `traces`, `metastore` | the commands of each service |
//! | `auth` | `auth`: tokens, keys and roles, and questions about them |
//! | `status`, `context` | `status`, `doctor`, `open`, `context`: a server and how commands find it |
//! | `inject` | `inject`: fault injection in a running server |
//! | `engine` | `engine`: files of the storage engine, and its benchmark |
//! | `manual` | `completions`, `man` |
//!
//! Commands reach servers through `connect`, which has the flags for that, and print
//! through `output`, `escape` (bytes), `timestamp` and `progress`, or into a `new_file`. `confirm`
//! guards what cannot be undone, `private` reads files with secrets, `proc_stat` CPU times,
//! `allocator` sets up memory.
//!
//! Exit codes: 0 is success, 1 is damage found in a store or a missing row, 2 is an
//! invalid command or a failed input, output or call.
#![deny(unsafe_code)]

mod allocator;
mod auth;
mod catalogue;
mod cluster;
mod confirm;
mod connect;
mod context;
mod demo;
mod engine;
mod escape;
mod inject;
mod manual;
mod metastore;
mod name;
mod new_file;
mod output;
mod private;
mod proc_stat;
mod progress;
mod resources;
mod rows;
mod serve;
mod status;
mod table;
mod timestamp;
mod traces;
mod transfer;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A Bigtable you own.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store: the Bigtable API over gRPC, and health, metrics and the console
    /// over HTTP.
    #[command(args_override_self = true)]
    Serve(Box<serve::Flags>),
    /// Replace Google's Bigtable emulator, with the same flags; no data is kept.
    #[command(disable_help_flag = true)]
    Emulator {
        /// -host HOST, -port PORT, -address HOST:PORT
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Create, show, change and drop tables.
    #[command(subcommand, arg_required_else_help = true)]
    Table(table::Command),
    Read(rows::Read),
    Lookup(rows::Lookup),
    Set(rows::Set),
    Delete(rows::Delete),
    Count(rows::Count),
    Import(transfer::Import),
    Export(transfer::Export),
    /// Create, show, change and delete instances and their clusters.
    #[command(subcommand, arg_required_else_help = true)]
    Instance(resources::Instance),
    /// Create, list and delete app profiles.
    #[command(subcommand, arg_required_else_help = true)]
    Profile(resources::Profile),
    /// Create, list, copy, restore and delete backups of tables.
    #[command(subcommand, arg_required_else_help = true)]
    Backup(resources::Backup),
    /// Create, list and delete authorized views: parts of tables.
    #[command(subcommand, arg_required_else_help = true)]
    View(resources::View),
    Demo(demo::Demo),
    /// Create, fill, read and drop catalogues: ordered key-value indices.
    #[command(subcommand, arg_required_else_help = true)]
    Catalogue(catalogue::Command),
    /// Store one result per commit and configuration, and query what changed.
    #[command(subcommand, arg_required_else_help = true)]
    Traces(traces::Command),
    /// Mount servers on names, and find them by name.
    #[command(subcommand, arg_required_else_help = true)]
    Name(name::Command),
    /// Access the keys, transactions, watches, sessions and locks of the metastore.
    #[command(subcommand, arg_required_else_help = true)]
    Metastore(metastore::Command),
    /// Manage who may do what: tokens, keys, roles.
    #[command(subcommand, arg_required_else_help = true)]
    Auth(auth::Command),
    /// Create and administer clusters: several servers that share their tables.
    #[command(subcommand, arg_required_else_help = true)]
    Cluster(cluster::Command),
    /// Make a running server delay or fail calls on purpose, to test how clients retry.
    #[command(subcommand, arg_required_else_help = true)]
    Inject(inject::Command),
    Status(status::Status),
    Doctor(status::Doctor),
    Open(status::Open),
    /// Name servers, and choose the one that commands use.
    #[command(subcommand, arg_required_else_help = true)]
    Context(context::Command),
    /// Inspect the files of a storage engine, or benchmark it.
    #[command(subcommand, arg_required_else_help = true)]
    Engine(engine::Command),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// The outcome of a command that ran without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sound,
    Damaged,
    Absent,
    /// A check found something that should fail a job.
    Findings,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Servers set up their own logs.
    if !matches!(
        command,
        Command::Serve(_)
            | Command::Emulator { .. }
            | Command::Metastore(metastore::Command::Serve(_))
    ) {
        log_warnings();
    }
    let result = match command {
        Command::Serve(flags) => serve::run(*flags),
        Command::Emulator { flags } => serve::emulator::run(&flags),
        Command::Table(command) => table::run(command),
        Command::Read(read) => read.run(),
        Command::Lookup(lookup) => lookup.run(),
        Command::Set(set) => set.run(),
        Command::Delete(delete) => delete.run(),
        Command::Count(count) => count.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
        Command::Instance(command) => resources::instance(command),
        Command::Profile(command) => resources::profile(command),
        Command::Backup(command) => resources::backup(command),
        Command::View(command) => resources::view(command),
        Command::Demo(demo) => demo.run(),
        Command::Catalogue(command) => catalogue::run(command),
        Command::Traces(command) => traces::run(command),
        Command::Name(command) => name::run(command),
        Command::Metastore(command) => metastore::run(command),
        Command::Auth(command) => auth::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Inject(command) => inject::run(command),
        Command::Status(status) => status.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Open(open) => open.run(),
        Command::Context(command) => context::run(command),
        Command::Engine(command) => engine::run(command),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
    };
    match result {
        Ok(Outcome::Sound) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged | Outcome::Absent | Outcome::Findings) => ExitCode::from(1),
        // The reader of the output has closed it on purpose, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stele: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Logs warnings of the tools to standard error.
fn log_warnings() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_all_commands_fit_together() {
        Cli::command().debug_assert();
    }
}
