//! `stele metastore lease`: sessions that own keys and locks while they live. Ids are in
//! hex, as etcdctl writes leases.

use std::io::{self, Write};

use clap::Subcommand;
use serde_json::json;

use super::commands::Connection;
use super::render::{base64, done, hex};
use crate::output::{json_line, text};

#[derive(Subcommand)]
pub enum Command {
    /// Grant a session that lives for this many seconds unless it is kept alive.
    Grant {
        seconds: i64,
        #[command(flatten)]
        connection: Connection,
    },
    /// Keep a session alive until it is lost, or renew it once.
    KeepAlive {
        #[arg(value_parser = parse_id)]
        id: i64,
        /// Renew the session once and exit.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the remaining time of a session, and its keys.
    Show {
        #[arg(value_parser = parse_id)]
        id: i64,
        #[command(flatten)]
        connection: Connection,
    },
    /// List all sessions.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a session with its keys and locks.
    Revoke {
        #[arg(value_parser = parse_id)]
        id: i64,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Parses an id in hex.
pub fn parse_id(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bits = u64::from_str_radix(digits, 16);
    bits.map(|bits| bits as i64)
        .map_err(|_| format!("invalid lease id {text:?}: expected hexadecimal"))
}

pub fn run(command: Command) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match command {
        Command::Grant { seconds, connection } => {
            let (id, ttl) = connection.run(async |client| Ok(client.grant(seconds).await?))?;
            print_ttl(&mut out, "granted", id, ttl, connection.json)?;
        }
        Command::KeepAlive { id, once, connection } => connection.run(async |client| {
            loop {
                let ttl = client.keep_alive(id).await?;
                print_ttl(&mut out, "renewed", id, ttl, connection.json)?;
                if once {
                    return Ok(());
                }
                let pause = u64::try_from(ttl).unwrap_or(0) * 1000 / 3;
                tokio::time::sleep(std::time::Duration::from_millis(pause.max(100))).await;
            }
        })?,
        Command::Show { id, connection } => {
            let lease = connection.run(async |client| Ok(client.client(id).await?))?;
            if connection.json {
                let keys: Vec<String> = lease.keys.iter().map(|key| base64(key)).collect();
                let (ttl, granted) = (lease.ttl_seconds, lease.granted_seconds);
                json_line(
                    &mut out,
                    &json!({ "lease": hex(id), "ttl": ttl, "granted": granted, "keys": keys }),
                )?;
            } else {
                let (ttl, granted) = (lease.ttl_seconds, lease.granted_seconds);
                writeln!(out, "lease {id:x} granted with a TTL of {granted} s, {ttl} s remaining")?;
                lease.keys.iter().try_for_each(|key| writeln!(out, "{}", text(key)))?;
            }
        }
        Command::List { connection } => {
            let ids = connection.run(async |client| Ok(client.clients().await?))?;
            if connection.json {
                let ids: Vec<String> = ids.into_iter().map(hex).collect();
                json_line(&mut out, &json!({ "leases": ids }))?;
            } else {
                ids.iter().try_for_each(|id| writeln!(out, "{id:x}"))?;
            }
        }
        Command::Revoke { id, connection } => {
            connection.run(async |client| Ok(client.revoke(id).await?))?;
            drop(out);
            let json = json!({ "lease": hex(id), "revoked": true });
            done(&format!("lease {id:x} revoked"), &json, connection.json)?;
        }
    }
    Ok(())
}

fn print_ttl(out: &mut dyn Write, done: &str, id: i64, ttl: i64, json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &json!({ "lease": hex(id), "ttl": ttl }));
    }
    writeln!(out, "lease {id:x} {done} with a TTL of {ttl} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_printed() {
        assert_eq!(parse_id("32695410dcc0ca06"), Ok(0x3269_5410_dcc0_ca06));
        assert_eq!(parse_id("0x1f"), Ok(31));
        assert_eq!(parse_id(&hex(-7)), Ok(-7));
        assert!(parse_id("lease").is_err());
    }
}
