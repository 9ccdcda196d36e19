//! `stele demo`: a small realistic data set, to look at within a minute of starting.

use clap::Args;
use stele_bigtable_client::{Client, GcRule, NewTable, RowEntry};
use tonic::Code;

use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::output::print_line;

const USERS: usize = 1000;
const SENSORS: usize = 20;
const MEASUREMENTS: usize = 500;
/// 2026-01-01, in microseconds: the data are the same every time.
const START_MICROS: i64 = 1_767_225_600_000_000;
const MINUTE_MICROS: i64 = 60_000_000;

/// Create three tables with data: users, a time series, and a graph.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele demo
  stele read demo-users --prefix de: --limit 3
  stele read demo-sensors --prefix 'sensor-07#' --limit 5
  stele read demo-graph --prefix 'user-0001#'

Running it again changes nothing. Remove the tables with `stele table drop`.")]
pub struct Demo {
    #[command(flatten)]
    server: BigtableServer,
}

impl Demo {
    pub fn run(self) -> anyhow::Result<Outcome> {
        self.server.run(async |client| {
            let tables = [
                (
                    NewTable::new("demo-users")
                        .family("profile", GcRule::MaxVersions(1))
                        .family("stats", GcRule::MaxVersions(3)),
                    users(),
                    "stele read demo-users --prefix de: --limit 3",
                ),
                (
                    NewTable::new("demo-sensors").family("measured", GcRule::MaxVersions(1)),
                    measurements(),
                    "stele read demo-sensors --prefix 'sensor-07#' --limit 5",
                ),
                (
                    NewTable::new("demo-graph").family("edge", GcRule::MaxVersions(1)),
                    edges(),
                    "stele read demo-graph --prefix 'user-0001#'",
                ),
            ];
            for (table, rows, example) in tables {
                let (id, count) = (table.id.clone(), rows.len());
                load(&client, table, rows).await?;
                print_line(&format!("table {id} with {count} rows: {example}"))?;
            }
            Ok(Outcome::Sound)
        })
    }
}

/// Creates a table unless it exists, and writes its rows.
async fn load(client: &Client, table: NewTable, rows: Vec<RowEntry>) -> anyhow::Result<()> {
    let id = table.id.clone();
    match client.create_table(table).await {
        Err(error) if error.code() != Code::AlreadyExists => return Err(with_hint(error)),
        _ => {}
    }
    let outcomes = client.table(&id).map_err(with_hint)?.write_rows(rows).await;
    outcomes.into_iter().collect::<Result<(), _>>().map_err(with_hint)
}

/// A generator of numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Knuth's constants for a linear congruential generator.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// Users by country and number; the number of their visits changes over time.
fn users() -> Vec<RowEntry> {
    let countries = [("de", "Berlin"), ("fr", "Lyon"), ("jp", "Osaka"), ("br", "Recife")];
    let first = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "John"];
    let last = ["Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Allen", "Backus"];
    let mut dice = Dice(1);
    let user = |number: usize| {
        let (country, city) = countries[number % countries.len()];
        let mut row = RowEntry::new(format!("{country}:user-{number:04}"));
        let name = format!("{} {}", dice.pick(&first), dice.pick(&last));
        row.set_at("profile", b"name", START_MICROS, name.as_bytes());
        row.set_at("profile", b"city", START_MICROS, city.as_bytes());
        if dice.roll(3) > 0 {
            let mail = format!("user-{number:04}@example.com");
            row.set_at("profile", b"mail", START_MICROS, mail.as_bytes());
        }
        let mut visits = dice.roll(50) as i64;
        for day in 0..3 {
            let at = START_MICROS + day * 24 * 60 * MINUTE_MICROS;
            row.set_at("stats", b"visits", at, &visits.to_be_bytes());
            visits += dice.roll(10) as i64;
        }
        row
    };
    (0..USERS).map(user).collect()
}

/// A row per sensor and minute, newest first: the key ends with the time until the year 2100.
fn measurements() -> Vec<RowEntry> {
    const END_SECONDS: i64 = 4_102_444_800;
    let mut dice = Dice(2);
    let mut rows = Vec::with_capacity(SENSORS * MEASUREMENTS);
    for sensor in 0..SENSORS {
        let mut tenths = 180 + dice.roll(60) as i64;
        for minute in 0..MEASUREMENTS {
            let at = START_MICROS + minute as i64 * MINUTE_MICROS;
            tenths += dice.roll(5) as i64 - 2;
            let until = END_SECONDS - at / 1_000_000;
            let mut row = RowEntry::new(format!("sensor-{sensor:02}#{until:010}"));
            let degrees = format!("{}.{}", tenths / 10, tenths % 10);
            row.set_at("measured", b"celsius", at, degrees.as_bytes());
            row.set_at("measured", b"humidity", at, format!("{}", 40 + dice.roll(20)).as_bytes());
            rows.push(row);
        }
    }
    rows
}

/// Who follows whom: a row per edge, so that the edges of a user are together.
fn edges() -> Vec<RowEntry> {
    let mut dice = Dice(3);
    let mut rows = Vec::new();
    for from in 0..USERS {
        for _ in 0..=dice.roll(8) {
            let to = dice.roll(USERS);
            let mut row = RowEntry::new(format!("user-{from:04}#follows#user-{to:04}"));
            let weight = format!("{}", 1 + dice.roll(100));
            row.set_at("edge", b"weight", START_MICROS, weight.as_bytes());
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_the_same_every_time() {
        let keys = |rows: Vec<RowEntry>| {
            rows.iter().map(|row| (row.key().clone(), row.len())).collect::<Vec<_>>()
        };
        assert_eq!(keys(users()), keys(users()));
        assert_eq!(keys(edges()), keys(edges()));
        let (users, measured) = (users(), measurements());
        assert_eq!((users.len(), measured.len()), (USERS, SENSORS * MEASUREMENTS));
        assert_eq!(users[0].key(), "de:user-0000");
    }
}
