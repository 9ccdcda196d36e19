//! `stele set`: sets cells of one row.

use std::str::FromStr;

use bytes::Bytes;
use clap::Args;
use stele_bigtable_client::Mutation;

use super::Column;
use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::escape::unescape;
use crate::output::{print_line, text, things};

/// Set cells of one row atomically.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele set users de:4711 info:name=Ada info:mail=ada@example.com
  stele set users de:4711 'info:photo=\\xff\\xd8'
  stele set users de:4711 info:visits=3@1767225600000000

A cell is family:qualifier=value. Its time is the server's, or what follows the
last @ if that is a number: microseconds since 1970. Type an = in a qualifier
as \\x3d, and an @ that is part of the value before digits as \\x40.")]
pub struct Set {
    table: String,
    /// Key of the row.
    #[arg(value_parser = unescape)]
    key: Bytes,
    #[arg(required = true, value_name = "FAMILY:QUALIFIER=VALUE[@TIME]")]
    cells: Vec<NewCell>,
    #[command(flatten)]
    server: BigtableServer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NewCell {
    family: String,
    qualifier: Bytes,
    value: Bytes,
    timestamp_micros: Option<i64>,
}

impl FromStr for NewCell {
    type Err = String;

    fn from_str(typed: &str) -> Result<NewCell, String> {
        let invalid =
            || format!("invalid cell {typed:?}: expected FAMILY:QUALIFIER=VALUE[@MICROS]");
        let (column, value) = typed.split_once('=').ok_or_else(invalid)?;
        let Column { family, qualifier: Some(qualifier) } = column.parse()? else {
            return Err(invalid());
        };
        let is_time = |time: &str| !time.is_empty() && time.bytes().all(|b| b.is_ascii_digit());
        let (value, timestamp_micros) = match value.rsplit_once('@') {
            Some((value, time)) if is_time(time) => {
                let time = time.parse().map_err(|_| {
                    format!("invalid timestamp {time}: expected microseconds since 1970")
                })?;
                (value, Some(time))
            }
            _ => (value, None),
        };
        Ok(NewCell { family, qualifier, value: unescape(value)?, timestamp_micros })
    }
}

impl Set {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let count = self.cells.len() as u64;
        let mutations: Vec<_> = self.cells.into_iter().map(mutation).collect();
        self.server.run(async |client| {
            let table = client.table(&self.table).map_err(with_hint)?;
            table.mutate_row(self.key.clone(), mutations).await.map_err(with_hint)
        })?;
        print_line(&format!("set {} in row {}", things(count, "cell"), text(&self.key)))?;
        Ok(Outcome::Sound)
    }
}

fn mutation(cell: NewCell) -> Mutation {
    match cell.timestamp_micros {
        Some(time) => Mutation::set_at(&cell.family, cell.qualifier, time, cell.value),
        None => Mutation::set(&cell.family, cell.qualifier, cell.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(qualifier: &'static str, value: &'static str, time: Option<i64>) -> NewCell {
        let (qualifier, value) = (qualifier.into(), value.into());
        NewCell { family: "f".into(), qualifier, value, timestamp_micros: time }
    }

    #[test]
    fn cells_are_typed_as_in_cbt() {
        for (typed, expected) in [
            ("f:q=v", cell("q", "v", None)),
            ("f:q=v@5000", cell("q", "v", Some(5000))),
            ("f:q=", cell("q", "", None)),
            ("f:=v", cell("", "v", None)),
            ("f:a:b=c=d", cell("a:b", "c=d", None)),
            ("f:a\\x3d=b", cell("a=", "b", None)),
            ("f:q=a@b.c", cell("q", "a@b.c", None)),
            ("f:q=a@", cell("q", "a@", None)),
            ("f:q=a@1@2", cell("q", "a@1", Some(2))),
            ("f:q=a\\x401", cell("q", "a@1", None)),
        ] {
            assert_eq!(typed.parse(), Ok(expected), "{typed}");
        }
        for typed in ["", "f", "f:q", "f=v", ":q=v", "f:q=v@99999999999999999999", "f:q=\\q"] {
            assert!(typed.parse::<NewCell>().is_err(), "{typed}");
        }
    }
}
