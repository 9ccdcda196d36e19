//! `stele metastore lock`: holds a lock while a command runs, or shows it.

use std::io::{self, Write};
use std::process::Stdio;

use anyhow::Context;
use clap::Args;
use stele_metastore::client::{Client, Mode, Session};

use super::commands::Connection;
use super::render;
use crate::Outcome;
use crate::escape::Typed;
use crate::output::{json_line, text};

/// Show a lock, or hold it while a command runs.
///
/// The command gets the fencing token in STELE_LOCK_TOKEN. If the session is lost, the
/// command is killed, because another client may hold the lock by then.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore lock backups\n  \
    stele metastore lock backups -- tar cf backup.tar data\n  \
    stele metastore lock backups --shared --no-wait -- ./report")]
pub struct Lock {
    name: Typed,
    /// Share the lock with other shared holders.
    #[arg(long)]
    shared: bool,
    /// Fail at once if another client holds the lock.
    #[arg(long)]
    no_wait: bool,
    /// Seconds after which the lock is released if this program dies.
    #[arg(long, default_value_t = 15)]
    ttl: i64,
    #[command(flatten)]
    connection: Connection,
    /// Command to run while the lock is held.
    #[arg(last = true)]
    command: Vec<String>,
}

impl Lock {
    pub fn run(self) -> anyhow::Result<Outcome> {
        self.connection.run(async |client| match self.command.is_empty() {
            true => self.show(&client).await,
            false => self.hold(&client).await,
        })
    }

    async fn show(&self, client: &Client) -> anyhow::Result<Outcome> {
        let lock = client.lock(self.name.0.clone()).await?;
        let out = &mut io::stdout().lock();
        if self.connection.json {
            json_line(out, &render::lock_json(&lock))?;
        } else {
            writeln!(out, "{}", render::lock_line(&lock))?;
        }
        Ok(if lock.holders.is_empty() { Outcome::Absent } else { Outcome::Sound })
    }

    async fn hold(&self, client: &Client) -> anyhow::Result<Outcome> {
        let mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        let session = client.session(self.ttl).await?;
        let name = self.name.0.clone();
        let held = if self.no_wait {
            session.try_acquire(name, mode).await?
        } else {
            Some(session.acquire(name, mode).await?)
        };
        let Some(held) = held else {
            session.close().await?;
            anyhow::bail!("lock {} is held by another session", text(&self.name.0));
        };
        let ran = self.run_command(&session, held.token()).await;
        // Closing the session releases the lock.
        session.close().await?;
        let status = ran?;
        anyhow::ensure!(status.success(), "{}: {status}", self.command[0]);
        Ok(Outcome::Sound)
    }

    async fn run_command(
        &self,
        session: &Session,
        token: i64,
    ) -> anyhow::Result<std::process::ExitStatus> {
        let mut child = tokio::process::Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("STELE_LOCK_TOKEN", token.to_string())
            .stdin(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.command[0]))?;
        tokio::select! {
            status = child.wait() => Ok(status?),
            why = session.lost() => {
                child.kill().await?;
                anyhow::bail!("lost the lock and killed the command: {why}")
            }
        }
    }
}
