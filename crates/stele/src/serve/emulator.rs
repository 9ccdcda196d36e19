//! `stele emulator`: a drop-in replacement for Google's Bigtable emulator, with the same
//! flags and output. No data is kept.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use super::auth::AuthMode;
use super::banner::Audience;
use super::settings::{EffectiveSettings, Flags, PartialSettings, Port, TimeSpan};
use crate::Outcome;

const HELP: &str = "\
A drop-in replacement for Google's Bigtable emulator. No data is kept.

Usage: stele emulator [-host HOST] [-port PORT]

  -host HOST          address to listen on (default localhost)
  -port PORT          port to listen on; 0 for any free port (default 9000)
  -address HOST:PORT  both at once; overrides the others (also --host-port)

Flags take one dash or two, and a space or `=` before their value.
RUST_LOG selects what is logged.";

pub fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let Some(address) = Address::parse(arguments)? else {
        println!("{HELP}");
        return Ok(Outcome::Sound);
    };
    super::process::start(&address.settings()?, Audience::EmulatorClients)
}

#[derive(Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Parses flags as Go programs do. Returns `None` when help is requested.
    fn parse(arguments: &[String]) -> anyhow::Result<Option<Address>> {
        let mut host = "localhost".to_string();
        let mut port = "9000".to_string();
        let mut both = None;
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or(argument.strip_prefix('-')) else {
                bail!("invalid argument {argument:?}: see stele emulator -help");
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (flag, None),
            };
            if matches!(name, "h" | "help") {
                return Ok(None);
            }
            let given = match name {
                "host" => &mut host,
                "port" => &mut port,
                "address" | "host-port" => both.insert(String::new()),
                _ => bail!("unknown flag -{name}: see stele emulator -help"),
            };
            *given = value
                .or_else(|| arguments.next().cloned())
                .ok_or_else(|| anyhow!("-{name} requires a value"))?;
        }
        if let Some(both) = both {
            if both.contains('/') {
                bail!("-address {both}: unix sockets are not supported, use HOST:PORT");
            }
            let (left, right) = both
                .rsplit_once(':')
                .ok_or_else(|| anyhow!("-address {both}: expected HOST:PORT"))?;
            (host, port) = (left.to_string(), right.to_string());
        }
        // An empty host means every address, as in Go.
        let host = if host.is_empty() { "0.0.0.0".into() } else { host };
        let port = port.parse().with_context(|| format!("-port {port}"))?;
        Ok(Some(Address { host, port }))
    }

    fn settings(self) -> anyhow::Result<EffectiveSettings> {
        let given = PartialSettings {
            ephemeral: Some(true),
            listen: Some(self.host),
            grpc_port: Some(Port::Number(self.port)),
            http_port: Some(Port::Off),
            dns_port: Some(Port::Off),
            metastore_port: Some(Port::Off),
            auth: Some(AuthMode::None),
            keep_deleted: Some(TimeSpan(Duration::ZERO)),
            ..PartialSettings::default()
        };
        EffectiveSettings::resolve(Flags { config: None, settings: given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Option<Address>> {
        let arguments: Vec<String> = line.split_whitespace().map(Into::into).collect();
        Address::parse(&arguments)
    }

    #[test]
    fn the_flags_of_googles_emulator_are_taken_in_every_form() {
        let at = |host: &str, port| Some(Address { host: host.into(), port });
        for line in [
            "-host h -port 1",
            "--host=h --port=1",
            "-port=1 --host h",
            "-address h:1",
            "--host-port=h:1 -port 7",
        ] {
            assert_eq!(parse(line).unwrap(), at("h", 1), "{line}");
        }
        assert_eq!(parse("").unwrap(), at("localhost", 9000));
        assert_eq!(parse("-address :0").unwrap(), at("0.0.0.0", 0));
        assert_eq!(parse("--host-port [::1]:8086").unwrap(), at("[::1]", 8086));
        assert_eq!(parse("-port 3 -help").unwrap(), None);
        for wrong in ["serve", "-dir x", "-port", "-port x", "-address nothing", "-address /tmp/s"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
