//! `stele name acl`: the permissions of a node.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use stele_mounttable::Error;
use stele_mounttable::access::Permissions;

use crate::Outcome;
use crate::connect::{NameServer, read, with_hint};
use crate::output::json_line;

/// The maximum number of attempts when others set permissions concurrently.
const ATTEMPTS: u32 = 10;

#[derive(Subcommand)]
pub enum Command {
    Get(Get),
    Set(Set),
}

/// Show the permissions of a node as JSON.
#[derive(Args)]
#[command(after_help = "Example:\n  stele name acl get services > acl.json")]
pub struct Get {
    name: String,
    /// Print {"permissions": ..., "version": ...} on one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

/// Set the permissions of a node, which makes it sticky.
#[derive(Args)]
#[command(after_help = "\
Example:
  echo '{\"Admin\":{\"In\":[\"ann\"]},\"Read\":{\"In\":[\"...\"]}}' | stele name acl set services -

Tags are Admin, Create, Mount, Read and Resolve. `...` matches everyone, `a:b`
matches a:b and all its extensions, `a:b:$` only a:b. Tags that start with %%/
are templates for future children, with %% for their names.")]
pub struct Set {
    name: String,
    /// JSON file, or - for standard input.
    file: String,
    /// Fail unless the permissions have this version.
    #[arg(long)]
    version: Option<String>,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Get(get) => get.run(),
        Command::Set(set) => set.run(),
    }
}

impl Get {
    fn run(self) -> anyhow::Result<Outcome> {
        let (permissions, version) = self
            .name_server
            .run(async |names| names.permissions(&self.name).await.map_err(with_hint))?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &json!({"permissions": permissions, "version": version}))?;
        } else {
            writeln!(out, "{}", serde_json::to_string_pretty(&permissions)?)?;
        }
        Ok(Outcome::Sound)
    }
}

impl Set {
    fn run(self) -> anyhow::Result<Outcome> {
        let text = match &self.file[..] {
            "-" => {
                let mut text = Vec::new();
                io::stdin().lock().read_to_end(&mut text).context("reading standard input")?;
                text
            }
            path => read(Path::new(path))?,
        };
        let permissions = Permissions::from_json(&text)?;
        let version = self.name_server.run(async |names| {
            if let Some(version) = &self.version {
                let set = names.set_permissions(&self.name, &permissions, version).await;
                return set.map_err(with_hint);
            }
            for _ in 1..ATTEMPTS {
                let version = match names.permissions(&self.name).await {
                    Ok((_, version)) => version,
                    Err(error) if error.code() == tonic::Code::NotFound => String::new(),
                    Err(error) => return Err(with_hint(error)),
                };
                match names.set_permissions(&self.name, &permissions, &version).await {
                    Err(Error::Refused { kind, .. }) if kind == "BadVersion" => {}
                    set => return set.map_err(with_hint),
                }
            }
            names.set_permissions(&self.name, &permissions, "").await.map_err(with_hint)
        })?;
        if self.json {
            json_line(&mut io::stdout().lock(), &json!({"version": version}))?;
        }
        Ok(Outcome::Sound)
    }
}
