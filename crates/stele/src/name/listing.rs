//! `stele name resolve`, `ls`, `tree` and `glob`: looks up names.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use stele_mounttable::client::Namespace;
use stele_mounttable::{Entry, FOREVER_MICROS, Found, name};
use tokio::sync::mpsc;

use crate::Outcome;
use crate::connect::{NameServer, with_hint};
use crate::output::json_line;

/// Show the servers that a name resolves to.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name resolve services/web
  stele name resolve services/web/some/object --json

Exits with 1 if the name does not resolve.")]
pub struct Resolve {
    name: String,
    /// Query only the first mounttable.
    #[arg(long)]
    step: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Resolve {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let resolved = self.name_server.run(async |names| {
            let resolved = match self.step {
                true => names.resolve_step(&self.name).await,
                false => names.resolve(&self.name).await,
            };
            match resolved {
                Ok(entry) => Ok(Some(entry)),
                Err(error) if error.code() == tonic::Code::NotFound => {
                    eprintln!("stele: {error}");
                    Ok(None)
                }
                Err(error) => Err(with_hint(error)),
            }
        })?;
        let Some(entry) = resolved else { return Ok(Outcome::Absent) };
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &entry_json(&entry))?;
        } else {
            for (full, server) in entry.names().iter().zip(&entry.servers) {
                writeln!(out, "{full}{}", until(server.deadline_micros))?;
            }
        }
        Ok(Outcome::Sound)
    }
}

fn until(deadline_micros: i64) -> String {
    match deadline_micros {
        FOREVER_MICROS => String::new(),
        micros => format!("  until {}", crate::timestamp::format(micros)),
    }
}

fn entry_json(entry: &Entry) -> Value {
    let server = |server: &stele_mounttable::node::Server| json!({"server": server.address, "deadline_micros": server.deadline_micros});
    json!({
        "name": entry.name,
        "servers": entry.servers.iter().map(server).collect::<Vec<_>>(),
        "names": entry.names(),
        "mt": entry.flags.mt,
        "leaf": entry.flags.leaf,
    })
}

/// List the children of a name.
#[derive(Args)]
#[command(after_help = "Examples:\n  stele name ls\n  stele name ls services -l")]
pub struct Ls {
    #[arg(default_value = "")]
    name: String,
    /// Show their servers.
    #[arg(short, long)]
    long: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Ls {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let pattern = name::join([&quoted(&self.name)[..], "*"]);
        let (entries, errors) = search(&self.name_server, &pattern)?;
        let mut out = io::stdout().lock();
        for entry in &entries {
            let last = entry.name.rsplit('/').next().unwrap_or_default();
            match (self.json, self.long) {
                (true, _) => json_line(&mut out, &entry_json(entry))?,
                (false, false) => writeln!(out, "{last}")?,
                (false, true) => write_long(&mut out, last, entry)?,
            }
        }
        report(errors)
    }
}

fn write_long(out: &mut dyn Write, name: &str, entry: &Entry) -> io::Result<()> {
    writeln!(out, "{name}")?;
    for server in &entry.servers {
        let flags = match (server.flags.mt, server.flags.leaf) {
            (false, false) => "",
            (true, false) => "  mt",
            (false, true) => "  leaf",
            (true, true) => "  mt leaf",
        };
        writeln!(out, "  {}{flags}{}", server.address, until(server.deadline_micros))?;
    }
    Ok(())
}

/// Show everything below a name.
#[derive(Args)]
#[command(after_help = "Example:\n  stele name tree services")]
pub struct Tree {
    #[arg(default_value = "")]
    name: String,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Tree {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let pattern = name::join([&quoted(&self.name)[..], "***"]);
        let (entries, errors) = search(&self.name_server, &pattern)?;
        let above = name::clean(&self.name).split('/').filter(|part| !part.is_empty()).count();
        let mut out = io::stdout().lock();
        for entry in &entries {
            if self.json {
                json_line(&mut out, &entry_json(entry))?;
                continue;
            }
            let depth = entry.name.split('/').filter(|part| !part.is_empty()).count();
            let last = entry.name.rsplit('/').next().unwrap_or_default();
            let last = if depth == 0 { "(root)" } else { last };
            let servers: Vec<_> = entry.servers.iter().map(|server| &server.address[..]).collect();
            let gap = if servers.is_empty() { "" } else { "  " };
            let indent = "  ".repeat(depth.saturating_sub(above));
            writeln!(out, "{indent}{last}{gap}{}", servers.join(" "))?;
        }
        report(errors)
    }
}

/// Find names by a pattern.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name glob 'services/web*'
  stele name glob 'users/*/phone' -l
  stele name glob '/10.0.0.9:8086/teams/...'

In an element, * matches any characters, ? one character, [a-z] and [^a-z] a class,
and \\ escapes. At the end, ... matches everything below; *** does so without
querying servers that are not mounttables.")]
pub struct Glob {
    pattern: String,
    /// Show their servers.
    #[arg(short, long)]
    long: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Glob {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (entries, errors) = search(&self.name_server, &self.pattern)?;
        let mut out = io::stdout().lock();
        for entry in &entries {
            match (self.json, self.long) {
                (true, _) => json_line(&mut out, &entry_json(entry))?,
                (false, false) => writeln!(out, "{}", entry.name)?,
                (false, true) => write_long(&mut out, &entry.name, entry)?,
            }
        }
        report(errors)
    }
}

/// Escapes the name as a pattern that matches only itself; keeps an address unchanged.
fn quoted(given: &str) -> String {
    let (address, rest) = match name::is_rooted(given) {
        true => name::split_address(given),
        false => (String::new(), name::clean(given)),
    };
    let special = |ch: char| matches!(ch, '*' | '?' | '[' | '\\');
    let rest: String =
        rest.chars().flat_map(|ch| special(ch).then_some('\\').into_iter().chain([ch])).collect();
    name::join_address(&address, &rest)
}

/// Returns all entries sorted by name without duplicates, and the errors.
fn search(name_server: &NameServer, pattern: &str) -> anyhow::Result<(Vec<Entry>, Vec<String>)> {
    name_server.run(async |names: Arc<Namespace>| {
        let (out, mut found) = mpsc::channel(64);
        let searching = {
            let (names, pattern) = (names.clone(), pattern.to_string());
            tokio::spawn(async move { names.glob(&pattern, &out).await })
        };
        let (mut entries, mut errors) = (Vec::<Entry>::new(), Vec::new());
        while let Some(found) = found.recv().await {
            match found {
                Found::Entry(entry) => entries.push(entry),
                Found::Error { name, error } => errors.push(match &name[..] {
                    "" => error.to_string(),
                    name => format!("{name}: {error}"),
                }),
            }
        }
        searching.await?.map_err(with_hint)?;
        entries.sort_by(|a, b| a.name.split('/').cmp(b.name.split('/')));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok((entries, errors))
    })
}

/// Prints the errors to standard error. Any error means that the result is incomplete.
fn report(errors: Vec<String>) -> anyhow::Result<Outcome> {
    for error in &errors {
        eprintln!("stele: {error}");
    }
    Ok(if errors.is_empty() { Outcome::Sound } else { Outcome::Absent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_so_that_it_matches_itself() {
        assert_eq!(quoted("a*b//c[1]/"), "a\\*b/c\\[1]");
        assert_eq!(quoted("/[::1]:80/x?"), "/[::1]:80/x\\?");
        assert_eq!(quoted(""), "");
    }
}
