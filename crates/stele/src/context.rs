//! `stele context`: named servers, kept in a file that every command reads.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::Outcome;
use crate::connect::{Context, Contexts, ServerArgs, TlsFiles, examine};
use crate::output::{json_line, print_line, table};

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  stele context set laptop --server 127.0.0.1:18086
  stele context set prod --server https://db.example.com --tls-ca ca.pem --project shop
  stele context use prod
  stele context list
  stele table list --context laptop

Contexts are in ~/.config/stele/config.toml (or $XDG_CONFIG_HOME/stele). A command uses
--server, else --context, else $STELE_SERVER, else $STELE_CONTEXT, else the variables of
single services, else the context in use, else this machine.")]
pub enum Command {
    /// Show all contexts; the one in use is marked.
    List {
        #[arg(long)]
        json: bool,
    },
    /// Create or replace a context. The first one is used at once.
    Set(Set),
    /// Use a context in commands that name no server.
    Use { name: String },
    /// Use no context.
    Unset,
    /// Remove a context.
    Remove { name: String },
    /// Find out whether the server of a context answers, and on which ports.
    Test {
        /// The context [default: the one in use]
        #[arg(verbatim_doc_comment)]
        name: Option<String>,
    },
}

#[derive(Args)]
pub struct Set {
    name: String,
    /// Server: host, host:port with any of its ports, or https://host:port.
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// Project of its tables.
    #[arg(long)]
    project: Option<String>,
    /// Instance of its tables.
    #[arg(long)]
    instance: Option<String>,
    /// Trust these certificates (PEM) instead of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate (PEM) to present.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    let mut contexts = Contexts::read()?;
    match command {
        Command::List { json } => list(&contexts, json)?,
        Command::Set(set) => {
            let name = set.name.clone();
            if name.is_empty() || name.chars().any(char::is_control) {
                bail!("invalid name {name:?} of a context");
            }
            let known = contexts.all.insert(name.clone(), set.context()?).is_some();
            contexts.current.get_or_insert_with(|| name.clone());
            contexts.write()?;
            print_line(&format!("{} context {name}", if known { "updated" } else { "created" }))?;
        }
        Command::Use { name } => {
            let server = contexts.get(&name)?.server.clone();
            contexts.current = Some(name.clone());
            contexts.write()?;
            print_line(&format!("commands now use {server} (context {name})"))?;
        }
        Command::Unset => {
            contexts.current = None;
            contexts.write()?;
            print_line("commands now use this machine, unless they name a server")?;
        }
        Command::Remove { name } => {
            contexts.get(&name)?;
            contexts.all.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.write()?;
            print_line(&format!("deleted context {name}"))?;
        }
        Command::Test { name } => return test(&ServerArgs::of_context(name)),
    }
    Ok(Outcome::Sound)
}

impl Set {
    fn context(self) -> anyhow::Result<Context> {
        let absolute = |file: Option<PathBuf>| file.map(std::path::absolute).transpose();
        Ok(Context {
            server: self.server,
            project: self.project,
            instance: self.instance,
            tls_ca: absolute(self.tls_ca)?,
            tls_cert: absolute(self.tls_cert)?,
            tls_key: absolute(self.tls_key)?,
        })
    }
}

fn list(contexts: &Contexts, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let all: serde_json::Map<_, _> =
            contexts.all.iter().map(|(name, context)| (name.clone(), json!(context))).collect();
        return Ok(json_line(&mut out, &json!({"current": contexts.current, "contexts": all}))?);
    }
    if contexts.all.is_empty() {
        writeln!(out, "no contexts; `stele context set NAME --server HOST:PORT` creates one")?;
        return Ok(());
    }
    let mut lines = table(&["", "context", "server", "project", "instance"], 5);
    for (name, context) in &contexts.all {
        let mark = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (project, instance) = (text(&context.project), text(&context.instance));
        lines.add_row([mark.into(), name.clone(), context.server.clone(), project, instance]);
    }
    writeln!(out, "{lines}")?;
    Ok(())
}

/// Prints what answers on each port of the server. Exits with 1 if none does.
pub fn test(server: &ServerArgs) -> anyhow::Result<Outcome> {
    let examined = examine(server, &TlsFiles::default())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{} (from {})", examined.typed, examined.source)?;
    let mut any = false;
    for port in &examined.ports {
        any |= port.answers;
        writeln!(out, "  {:<10} {}", port.name, port.text)?;
    }
    Ok(if any { Outcome::Sound } else { Outcome::Absent })
}
