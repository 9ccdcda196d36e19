//! `stele traces init`: a new table of traces.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stele_traces::Store;
use stele_traces::http::INSTANCE;
use stele_traces::store::Settings;

use super::told;
use crate::Outcome;
use crate::connection::Connection;
use crate::output::json_line;

/// Make a table of traces. Doing it again changes nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces init ci
  stele traces init bench --tile 512 --test-key benchmark")]
pub struct Init {
    /// The table of traces, which is made if it is not there.
    table: String,
    /// Commits in a tile; cannot be changed later.
    #[arg(long, default_value_t = stele_traces::tile::TILE_COMMITS)]
    tile: u16,
    /// Parts that are read at once; cannot be changed later.
    #[arg(long, default_value_t = stele_traces::row_name::SHARDS)]
    shards: u8,
    /// The key whose value names the test that digests are triaged for.
    #[arg(long, default_value = "name")]
    test_key: String,
    /// JSON for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Init {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let settings = Settings {
            tile: self.tile,
            shards: self.shards,
            test_key: self.test_key.clone(),
            ..Settings::default()
        };
        self.connection.clone().within(INSTANCE).run(async |client| {
            Store::init(&client, &self.table, settings.clone()).await.map_err(told)
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &json!({"table": self.table, "settings": settings}))?;
        } else {
            writeln!(
                out,
                "table {} holds traces, {} commits to a tile",
                self.table, settings.tile
            )?;
        }
        Ok(Outcome::Sound)
    }
}
