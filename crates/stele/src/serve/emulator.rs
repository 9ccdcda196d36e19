//! `stele emulator`: a drop-in replacement for Google's Bigtable emulator, with the same
//! flags and output. No data is kept.

use anyhow::{Context, anyhow, bail};

use super::banner::Reader;
use super::settings::{Flags, Given, Port, Settings};
use crate::Outcome;

const HELP: &str = "\
A stand-in for Google's Bigtable emulator: nothing is kept.

Usage: stele emulator [-host HOST] [-port PORT]

  -host HOST          the address to listen on (default localhost)
  -port PORT          the port to listen on; 0 is any free one (default 9000)
  -address HOST:PORT  both at once; wins over the others (also --host-port)

Flags may have one dash or two, and `=` before their value.
RUST_LOG says what is logged.";

pub fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let Some(address) = Address::parse(arguments)? else {
        println!("{HELP}");
        return Ok(Outcome::Sound);
    };
    super::start(&address.settings()?, Reader::EmulatorClients)
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
                bail!("`{argument}` is no flag of the emulator: see stele emulator -help");
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
                _ => bail!("the emulator has no flag `-{name}`: see stele emulator -help"),
            };
            *given = value
                .or_else(|| arguments.next().cloned())
                .ok_or_else(|| anyhow!("-{name} needs a value"))?;
        }
        if let Some(both) = both {
            if both.contains('/') {
                bail!("-address {both}: unix sockets are not served, give HOST:PORT");
            }
            let (left, right) =
                both.rsplit_once(':').ok_or_else(|| anyhow!("-address {both}: write HOST:PORT"))?;
            (host, port) = (left.to_string(), right.to_string());
        }
        // An empty host means every address, as in Go.
        let host = if host.is_empty() { "0.0.0.0".into() } else { host };
        let port = port.parse().with_context(|| format!("-port {port}"))?;
        Ok(Some(Address { host, port }))
    }

    fn settings(self) -> anyhow::Result<Settings> {
        let given = Given {
            ephemeral: Some(true),
            listen: Some(self.host),
            grpc_port: Some(Port::Number(self.port)),
            http_port: Some(Port::Off),
            dns_port: Some(Port::Off),
            metastore_port: Some(Port::Off),
            ..Given::default()
        };
        Settings::resolve(Flags { config: None, given })
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
