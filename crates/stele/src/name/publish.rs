//! `stele name publish`: keeps a server mounted while a command runs, or until it is
//! stopped.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use stele_mounttable::Error;
use stele_mounttable::client::{PUBLISH_PERIOD, PublishedStatuses, Publisher};
use stele_mounttable::node::Flags;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Outcome;
use crate::connect::{NameServer, with_hint};
use crate::output::json_line;

/// Mount a server, refresh the mount while a command runs, then unmount it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name publish services/web 10.0.0.7:80 -- python3 -m http.server 80
  stele name publish services/web 10.0.0.7:80

Without a command, the mount is refreshed until the process is stopped (Ctrl-C).")]
pub struct Publish {
    name: String,
    server: String,
    /// Seconds between refreshes of the mount; it expires after three times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = PUBLISH_PERIOD.as_secs())]
    period: u64,
    /// The server is itself a mounttable.
    #[arg(long)]
    mt: bool,
    /// The server has no names below it.
    #[arg(long)]
    leaf: bool,
    /// Report events as lines of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Publish {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let ended = self.name_server.run(async |names| {
            let period = Duration::from_secs(self.period.max(1));
            let publisher = Publisher::new(names, period);
            let reporting = tokio::spawn(report_changes(publisher.statuses(), self.json));
            publisher.add_name(&self.name);
            publisher.add_server(&self.server, Flags { mt: self.mt, leaf: self.leaf });
            let ended = match &self.command[..] {
                [] => stop_signal().await.map(|()| None),
                [program, arguments @ ..] => {
                    let mut command = Command::new(program);
                    command.args(arguments);
                    run_command(command).await.map(Some)
                }
            };
            publisher.stop().await;
            reporting.await??;
            ended
        })?;
        match ended {
            Some(status) if !status.success() => bail!("the command failed: {status}"),
            _ => Ok(Outcome::Sound),
        }
    }
}

/// Reports status changes of each name and server until the publisher ends. The command
/// has standard output to itself, unless JSON is requested.
async fn report_changes(
    mut statuses: watch::Receiver<PublishedStatuses>,
    json: bool,
) -> io::Result<()> {
    let mut reported = PublishedStatuses::new();
    loop {
        let ended = statuses.changed().await.is_err();
        let now = statuses.borrow_and_update().clone();
        for ((name, server), status) in &now {
            let before = reported.get(&(name.clone(), server.clone()));
            if status.mounted && before.is_none_or(|before| !before.mounted) {
                report("mounted", name, server, None, json)?;
            }
            if let Some(error) = &status.last_error
                && before.is_none_or(|before| before.last_error.as_ref() != Some(error))
            {
                report("failed", name, server, Some(error), json)?;
            }
        }
        for (name, server) in reported.keys().filter(|pair| !now.contains_key(pair)) {
            report("unmounted", name, server, None, json)?;
        }
        if ended {
            return Ok(());
        }
        reported = now;
    }
}

fn report(
    event: &str,
    name: &str,
    server: &str,
    error: Option<&Error>,
    json: bool,
) -> io::Result<()> {
    let error = error.map(|error| with_hint(error.clone()).to_string());
    if json {
        let line = json!({"event": event, "name": name, "server": server, "error": error});
        return json_line(&mut io::stdout().lock(), &line);
    }
    match error {
        Some(error) => eprintln!("stele: {server} on {name}: {error}"),
        None => eprintln!("stele: {name}: {server} {event}"),
    }
    Ok(())
}

/// Waits for SIGTERM or SIGINT.
async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Runs a command until it exits. On SIGTERM or SIGINT, sends it SIGTERM and waits.
async fn run_command(mut command: Command) -> anyhow::Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().with_context(|| format!("starting {program}"))?;
    let process = rustix::process::Pid::from_child(&child);
    let mut ended = tokio::task::spawn_blocking(move || {
        let mut child = child;
        child.wait()
    });
    tokio::select! {
        status = &mut ended => return Ok(status??),
        received = stop_signal() => received?,
    }
    // The command may have exited in the meantime.
    let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    Ok(ended.await??)
}
