//! `stele name mount`, `unmount` and `rm`.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stele_bigtable_client::parse_age;
use stele_mounttable::Mount;
use stele_mounttable::node::Flags;

use crate::Outcome;
use crate::connect::{NameServer, with_hint};
use crate::output::json_line;

/// Mount a server on a name, or extend its mount.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name mount services/web 10.0.0.7:80 --ttl 5m
  stele name mount teams/blue 10.0.0.9:8086 --mt

A server is host:port, /host:port/suffix, or an endpoint @6@...@@. Without --ttl
the mount does not expire.")]
pub struct MountServer {
    name: String,
    server: String,
    /// Time until the mount expires: 30s, 5m, 2h, 1d.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    ttl: Option<u32>,
    /// Replace all other servers of the name.
    #[arg(long)]
    replace: bool,
    /// The server is itself a mounttable.
    #[arg(long)]
    mt: bool,
    /// The server has no names below it.
    #[arg(long)]
    leaf: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

/// Parses whole seconds, at least one.
fn seconds(text: &str) -> Result<u32, String> {
    let age = parse_age(text)
        .ok_or_else(|| format!("invalid duration {text:?}: use 30s, 5m, 2h or 1d"))?;
    match u32::try_from(age.as_secs()) {
        Ok(0) => Err(format!("invalid duration {text:?}: the minimum is 1s")),
        Ok(seconds) => Ok(seconds),
        Err(_) => Err(format!(
            "invalid duration {text:?}: too long; omit --ttl for a mount that does not expire"
        )),
    }
}

impl MountServer {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let mount = Mount {
            server: self.server.clone(),
            ttl_seconds: self.ttl.unwrap_or(0),
            flags: Flags { mt: self.mt, leaf: self.leaf },
            replace: self.replace,
        };
        let deadline = self
            .name_server
            .run(async |names| names.mount(&self.name, &mount).await.map_err(with_hint))?;
        let mut out = io::stdout().lock();
        if self.json {
            let line = json!({
                "name": self.name, "server": self.server, "deadline_micros": deadline,
            });
            json_line(&mut out, &line)?;
        } else {
            let until = crate::timestamp::format(deadline);
            writeln!(out, "{} mounted on {} until {until}", self.server, self.name)?;
        }
        Ok(Outcome::Sound)
    }
}

/// Unmount one server of a name, or all.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name unmount services/web 10.0.0.7:80
  stele name unmount services/web --all")]
pub struct Unmount {
    name: String,
    /// Address of the server, exactly as mounted.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    server: Option<String>,
    #[arg(long)]
    all: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Unmount {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let server = self.server.as_deref().unwrap_or_default();
        self.name_server
            .run(async |names| names.unmount(&self.name, server).await.map_err(with_hint))?;
        if self.json {
            let line = json!({"name": self.name, "server": self.server, "unmounted": true});
            json_line(&mut io::stdout().lock(), &line)?;
        }
        Ok(Outcome::Sound)
    }
}

/// Delete a node.
#[derive(Args)]
#[command(after_help = "Examples:\n  stele name rm services/old\n  stele name rm -r services/old")]
pub struct Rm {
    name: String,
    /// Delete everything below it too.
    #[arg(short, long)]
    recursive: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Rm {
    pub fn run(self) -> anyhow::Result<Outcome> {
        self.name_server
            .run(async |names| names.delete(&self.name, self.recursive).await.map_err(with_hint))?;
        if self.json {
            let line = json!({"name": self.name, "recursive": self.recursive, "deleted": true});
            json_line(&mut io::stdout().lock(), &line)?;
        }
        Ok(Outcome::Sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("2h"), Ok(7200));
        for bad in ["0s", "1ms", "", "x", "99999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
