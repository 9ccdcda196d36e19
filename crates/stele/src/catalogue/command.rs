//! The commands on catalogues.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use stele_catalogue::client::{Client, Step, Walk, WalkStart};
use stele_catalogue::fid::DEATHROW;
use stele_catalogue::proto::{CatalogueStat, Code, Flag};
use stele_catalogue::{Condemned, Fid};

use super::format;
use super::records::{Del, Get, Next, Put};
use super::transfer::{Export, Import};
use crate::Outcome;
use crate::confirm::confirm;
use crate::connect::{CatalogueServer, with_hint};
use crate::output::print_line;

const FIDS: &str = "\
A catalogue is named by its fid: i|CONT:KEY with numbers as in C (0x1f, 017, 15),
or CONT:KEY in hex with the type byte, as fids are printed.";

/// The maximum number of catalogues shown when none is named.
const LISTED_MAX: u32 = 100_000;

#[derive(Subcommand)]
pub enum Command {
    /// Create catalogues.
    #[command(after_help = format!("Example:\n  stele catalogue create 'i|1:1' 'i|1:2'\n\n{FIDS}"))]
    Create {
        #[arg(required = true, value_name = "FID")]
        fids: Vec<Fid>,
        /// Also allow ids of dropped catalogues, which are otherwise never reused.
        #[arg(long)]
        reuse: bool,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        server: CatalogueServer,
    },
    /// List catalogues in numeric order.
    #[command(after_help = "Example:\n  stele catalogue list --json")]
    List {
        /// First catalogue to list.
        #[arg(long, value_name = "FID")]
        start: Option<Fid>,
        /// Maximum number of catalogues.
        #[arg(long, default_value_t = 1000)]
        count: u32,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        server: CatalogueServer,
    },
    Put(Put),
    Get(Get),
    Del(Del),
    Next(Next),
    /// Drop catalogues with all their records.
    #[command(after_help = "Example:\n  stele catalogue drop 'i|1:1' --yes")]
    Drop {
        #[arg(required = true, value_name = "FID")]
        fids: Vec<Fid>,
        /// Confirm that all records are deleted.
        #[arg(long)]
        yes: bool,
        /// Wait until the records are removed from the deathrow.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        server: CatalogueServer,
    },
    /// Show how many records and bytes catalogues hold, including dropped ones.
    #[command(
        after_help = "Examples:\n  stele catalogue stat\n  stele catalogue stat 'i|1:1' --json"
    )]
    Stat {
        /// Catalogues to show; without any, all.
        #[arg(value_name = "FID")]
        fids: Vec<Fid>,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        server: CatalogueServer,
    },
    Import(Import),
    Export(Export),
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Form {
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Create { fids, reuse, form, server } => {
            let flags = if reuse { Flag::Reuse as u32 } else { 0 };
            let reply =
                server.run(async |client| client.create(&fids, flags).await.map_err(with_hint))?;
            format::catalogues(&mut io::stdout().lock(), &fids, &reply, "created", form)?;
            Ok(outcome(reply.codes().all(|code| code == Code::Ok)))
        }
        Command::List { start, count, form, server } => {
            let reply = server.run(async |client| {
                let flags = Flag::Slant as u32 | Flag::NoCookies as u32;
                client.list(start, count, flags).await.map_err(with_hint)
            })?;
            format::listed(&mut io::stdout().lock(), &reply, count, form)?;
            Ok(Outcome::Sound)
        }
        Command::Drop { fids, yes, wait, form, server } => {
            confirm(yes, "drop catalogues and all their records")?;
            let reply = server.run(async |client| {
                let reply = client.delete(&fids, 0).await.map_err(with_hint)?;
                if wait {
                    client.await_deathrow().await.map_err(with_hint)?;
                }
                Ok(reply)
            })?;
            format::catalogues(&mut io::stdout().lock(), &fids, &reply, "dropped", form)?;
            Ok(outcome(reply.codes().all(|code| code == Code::Ok)))
        }
        Command::Stat { fids, form, server } => {
            let (stats, dropped) = server.run(async |client| {
                let dropped = if fids.is_empty() { dropped(&client).await? } else { Vec::new() };
                Ok((stats(&client, fids).await?, dropped))
            })?;
            format::stats(&mut io::stdout().lock(), &stats, form)?;
            format::deathrow(&mut io::stdout().lock(), &dropped, form)?;
            Ok(outcome(stats.iter().all(|(_, stat)| stat.code() == Code::Ok)))
        }
        Command::Put(put) => put.run(),
        Command::Get(get) => get.run(),
        Command::Del(del) => del.run(),
        Command::Next(next) => next.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
    }
}

async fn stats(client: &Client, mut fids: Vec<Fid>) -> anyhow::Result<Vec<(Fid, CatalogueStat)>> {
    if fids.is_empty() {
        let flags = Flag::NoCookies as u32;
        let listed = client.list(None, LISTED_MAX, flags).await.map_err(with_hint)?;
        for catalogue in &listed.catalogues {
            fids.push(Fid::from_wire(&catalogue.fid)?);
        }
    }
    let stats = client.stat(&fids).await.map_err(with_hint)?;
    Ok(fids.into_iter().zip(stats).collect())
}

/// Returns the dropped catalogues whose records are being removed.
async fn dropped(client: &Client) -> anyhow::Result<Vec<Condemned>> {
    let starts = vec![WalkStart::at_edge(LISTED_MAX)];
    let walk = Walk { starts, flags: Flag::NoCookies as u32, ..Walk::default() };
    let mut records = client.catalogue(DEATHROW).next(walk).await.map_err(with_hint)?;
    let mut dropped = Vec::new();
    while let Some(step) = records.next().await.map_err(with_hint)? {
        if let Step::Record { value, .. } = step {
            dropped.extend(Condemned::decode(&value.joined()));
        }
    }
    Ok(dropped)
}

/// Returns `Absent` if anything requested was missing or could not be done.
pub(super) fn outcome(all: bool) -> Outcome {
    if all { Outcome::Sound } else { Outcome::Absent }
}

/// Prints what was done, as text or as JSON.
pub(super) fn report(form: Form, text: &str, json: &serde_json::Value) -> anyhow::Result<()> {
    if form.json {
        return Ok(writeln!(io::stdout().lock(), "{json}")?);
    }
    print_line(text)
}
