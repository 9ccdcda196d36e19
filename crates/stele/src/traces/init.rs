//! `stele traces init`: creates a table of traces.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stele_traces::Store;
use stele_traces::http::INSTANCE;
use stele_traces::store::TableSettings;

use super::user_error;
use crate::Outcome;
use crate::connect::BigtableServer;
use crate::output::json_line;

/// Create a table of traces. Idempotent.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces init ci
  stele traces init bench --tile 512 --test-key benchmark")]
pub struct Init {
    /// Table of traces, created if it does not exist.
    table: String,
    /// Commits per tile; cannot be changed later.
    #[arg(long, default_value_t = stele_traces::tile::TILE_COMMITS)]
    tile: u16,
    /// Shards that are read in parallel; cannot be changed later.
    #[arg(long, default_value_t = stele_traces::row_name::SHARDS)]
    shards: u8,
    /// Key whose value names the test that digests are triaged for.
    #[arg(long, default_value = "name")]
    test_key: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: BigtableServer,
}

impl Init {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let settings = TableSettings {
            tile: self.tile,
            shards: self.shards,
            test_key: self.test_key.clone(),
            ..TableSettings::default()
        };
        self.connection.clone().within(INSTANCE).run(async |client| {
            Store::init(&client, &self.table, settings.clone()).await.map_err(user_error)
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &json!({"table": self.table, "settings": settings}))?;
        } else {
            writeln!(
                out,
                "trace table {} is ready ({} commits per tile)",
                self.table, settings.tile
            )?;
        }
        Ok(Outcome::Sound)
    }
}
