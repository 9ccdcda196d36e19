//! `stele instance`, `profile`, `backup` and `view`: resources of the Bigtable API besides
//! tables. Clusters are below `stele instance cluster`.

mod backups;
mod clusters;
mod instances;
mod profiles;
mod views;

use std::io::{self, Write};

use serde_json::Value;

pub use backups::Command as Backup;
pub use instances::Command as Instance;
pub use profiles::Command as Profile;
pub use views::Command as View;

use crate::Outcome;
use crate::output::{json_line, table};

pub fn instance(command: Instance) -> anyhow::Result<Outcome> {
    instances::run(command).map(|()| Outcome::Sound)
}

pub fn profile(command: Profile) -> anyhow::Result<Outcome> {
    profiles::run(command).map(|()| Outcome::Sound)
}

pub fn backup(command: Backup) -> anyhow::Result<Outcome> {
    backups::run(command).map(|()| Outcome::Sound)
}

pub fn view(command: View) -> anyhow::Result<Outcome> {
    views::run(command).map(|()| Outcome::Sound)
}

/// Prints a list as a table, or as one JSON object per item.
fn print_list(header: &[&str], rows: Vec<(Vec<String>, Value)>, json: bool) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    if json {
        for (_, value) in rows {
            json_line(out, &value)?;
        }
        return Ok(());
    }
    let mut printed = table(header, header.len());
    for (row, _) in rows {
        printed.add_row(row);
    }
    Ok(writeln!(out, "{printed}")?)
}

/// Returns the last part of a resource name.
fn id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Parses `KEY=VALUE`.
fn parse_pair(typed: &str) -> Result<(String, String), String> {
    let (key, value) =
        typed.split_once('=').ok_or_else(|| format!("invalid {typed:?}: expected KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

fn mask(paths: &[&str]) -> Option<prost_types::FieldMask> {
    Some(prost_types::FieldMask { paths: paths.iter().map(|path| path.to_string()).collect() })
}
