//! `stele status`, `stele doctor` and `stele open`: the state of a server as its console
//! shows it, what may be wrong between here and there, and the console itself.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::Value;

use crate::Outcome;
use crate::connect::{HttpServer, examine};
use crate::output::{bytes, count};

/// The part of the console's API that says how a server does.
const OVERVIEW: &str = "/console/v1/overview?since=9000000000000";
/// A clock that differs by more needs attention.
const CLOCK_SECONDS: u64 = 5;

/// Show how a server does: rates of the last minute, memory, and what needs attention.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele status
  stele status --server db1:8086 --json

Exits with 1 if something does not work.")]
pub struct Status {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpServer,
}

/// Find out what may be wrong: the server that commands use, its ports, clock and disk.
#[derive(Args)]
#[command(after_help = "\
Example:
  stele doctor --server db1:8086

Exits with 1 if something does not work.")]
pub struct Doctor {
    #[command(flatten)]
    server: HttpServer,
}

/// Open the console of a server in a browser.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele open
  stele open /tables --url")]
pub struct Open {
    /// The page to open.
    #[arg(default_value = "/")]
    path: String,
    /// Print the address instead.
    #[arg(long)]
    url: bool,
    #[command(flatten)]
    server: HttpServer,
}

impl Status {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let overview = overview(&self.server)?;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{overview}")?;
            return Ok(outcome(&overview));
        }
        let text = |at: &str| overview.pointer(at).and_then(Value::as_str).unwrap_or("off");
        let number = |at: &str| overview.pointer(at).and_then(Value::as_f64).unwrap_or(0.0);
        let size = |at: &str| bytes(number(at) as u64);
        let uptime = number("/server/uptime_seconds") as u64;
        writeln!(out, "Stele {}, up for {}", text("/server/version"), span(uptime))?;
        writeln!(
            out,
            "  ports      gRPC {}, HTTP {}, metastore {}, DNS {}",
            text("/server/grpc"),
            text("/server/http"),
            text("/server/metastore"),
            text("/server/dns")
        )?;
        writeln!(
            out,
            "  last minute  {:.1} reads/s, {:.1} writes/s, {:.1} failed/s; median {}, 99 % {}",
            number("/minute/reads"),
            number("/minute/writes"),
            number("/minute/failed"),
            micros(overview.pointer("/minute/p50_micros")),
            micros(overview.pointer("/minute/p99_micros")),
        )?;
        writeln!(
            out,
            "  memory     {} resident; cells {} of {}, cache {} of {}",
            size("/gauges/resident_bytes"),
            size("/gauges/memory_bytes"),
            size("/gauges/memory_limit_bytes"),
            size("/gauges/cache_bytes"),
            size("/gauges/cache_limit_bytes")
        )?;
        writeln!(
            out,
            "  data       {}: {} tablets, {} files with {}",
            text("/server/data"),
            count(number("/gauges/tablets") as u64),
            count(number("/gauges/fragments") as u64),
            size("/gauges/fragment_bytes")
        )?;
        print_attention(&mut out, &overview)?;
        Ok(outcome(&overview))
    }
}

impl Doctor {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let examined = examine(&self.server.server, &self.server.tls)?;
        let mut out = io::stdout().lock();
        writeln!(out, "server  {} (from {})", examined.typed, examined.source)?;
        let mut works = false;
        for port in &examined.ports {
            works |= port.answers;
            writeln!(out, "port    {:<10} {}", port.name, port.text)?;
        }
        if !works {
            writeln!(out, "        start a server with `stele serve`, or name one with --server")?;
            return Ok(Outcome::Findings);
        }
        let overview = match overview(&self.server) {
            Ok(overview) => overview,
            Err(error) => {
                writeln!(out, "console {error:#}")?;
                return Ok(Outcome::Findings);
            }
        };
        let there = overview.pointer("/server/version").and_then(Value::as_str).unwrap_or("?");
        let here = env!("CARGO_PKG_VERSION");
        match there == here {
            true => writeln!(out, "version {here} here and there")?,
            false => writeln!(out, "version {here} here, {there} there")?,
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let then = overview.pointer("/minute/at").and_then(Value::as_u64).unwrap_or(now);
        match now.abs_diff(then) {
            0..=CLOCK_SECONDS => writeln!(out, "clock   agrees with the server's")?,
            apart => writeln!(out, "clock   {apart} s apart from the server's")?,
        }
        print_attention(&mut out, &overview)?;
        Ok(outcome(&overview))
    }
}

impl Open {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let url = format!("{}/{}", self.server.target()?.url(), self.path.trim_start_matches('/'));
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let opened = !self.url
            && Command::new(opener)
                .arg(&url)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .is_ok();
        match opened {
            true => writeln!(io::stdout().lock(), "opening {url}")?,
            false => writeln!(io::stdout().lock(), "{url}")?,
        }
        Ok(Outcome::Sound)
    }
}

fn overview(server: &HttpServer) -> anyhow::Result<Value> {
    let answer = server.request(Method::GET, OVERVIEW, String::new());
    let answer = answer.context("the console does not answer; it may be off (--console)")?;
    serde_json::from_slice(&answer).context("invalid response of the server")
}

fn print_attention(out: &mut dyn Write, overview: &Value) -> io::Result<()> {
    let all = overview["attention"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return writeln!(out, "nothing needs attention");
    }
    writeln!(out, "needs attention")?;
    for one in all {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        writeln!(out, "  {:<8} {}", text("level"), text("text"))?;
    }
    Ok(())
}

/// Returns whether something does not work.
fn outcome(overview: &Value) -> Outcome {
    let all = overview["attention"].as_array().map(Vec::as_slice).unwrap_or_default();
    match all.iter().any(|one| one["level"] == "failure") {
        true => Outcome::Findings,
        false => Outcome::Sound,
    }
}

fn micros(value: Option<&Value>) -> String {
    match value.and_then(Value::as_u64) {
        Some(micros) if micros >= 1000 => format!("{:.1} ms", micros as f64 / 1000.0),
        Some(micros) => format!("{micros} µs"),
        None => "-".into(),
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_two_units() {
        let shown = [0, 59, 61, 3_700, 90_000].map(span);
        assert_eq!(shown, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(micros(Some(&Value::from(1500))), "1.5 ms");
        assert_eq!(micros(None), "-");
    }
}
