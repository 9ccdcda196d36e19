//! `stele inject`: lists and replaces the fault injection rules of a running server.

use std::io::{self, Write};

use anyhow::Context;
use clap::{Args, Subcommand};
use http::Method;

use crate::Outcome;
use crate::connect::HttpServer;
use crate::output::{count, json_line, table};
use crate::serve::inject::{PATH, RuleList, RuleUpdate};

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  stele serve --ephemeral --inject '' &
  stele inject set 'ReadRows:latency=10ms..80ms,unavailable=1%' 'MutateRow@users:aborted=5%'
  stele inject list
  stele inject clear

The server must have been started with --inject and be on this machine.")]
pub enum Command {
    /// Show the rules and how many calls they have affected.
    List(Server),
    /// Replace all rules.
    Set {
        /// METHOD[@TABLE]:EFFECTS, where METHOD may be SERVICE/METHOD or *, and EFFECTS
        /// are latency=TIME, latency=TIME..TIME and CODE=PERCENT%, separated by commas.
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
        /// Seed that selects the affected calls; the same seed selects the same calls.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Remove all rules.
    Clear(Server),
}

#[derive(Args)]
pub struct Server {
    #[command(flatten)]
    http: HttpServer,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    let (method, body, server) = match command {
        Command::List(server) => (Method::GET, String::new(), server),
        Command::Clear(server) => (Method::DELETE, String::new(), server),
        Command::Set { rules, seed, server } => {
            (Method::PUT, serde_json::to_string(&RuleUpdate { rules, seed })?, server)
        }
    };
    let response = server.http.request(method, PATH, body)?;
    let rules = serde_json::from_slice(&response).context("invalid response of the server")?;
    print(&rules, server.json)?;
    Ok(Outcome::Sound)
}

fn print(rules: &RuleList, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return Ok(json_line(&mut out, &serde_json::to_value(rules)?)?);
    }
    if rules.rules.is_empty() {
        writeln!(out, "no rules")?;
        return Ok(());
    }
    let mut lines = table(&["rule", "calls", "failed"], 1);
    for rule in &rules.rules {
        lines.add_row([rule.rule.clone(), count(rule.matched), count(rule.failed)]);
    }
    writeln!(out, "{lines}")?;
    Ok(())
}
