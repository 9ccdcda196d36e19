//! `stele traces copy`: copies a table of traces to another table or server.

use std::io::{self, Write};

use anyhow::bail;
use clap::Args;
use serde_json::json;
use stele_bigtable_client::{Client, Options};
use stele_traces::http::INSTANCE;
use stele_traces::store::{Copied, copy};

use super::{TableArgs, user_error};
use crate::Outcome;
use crate::connect::with_hint;
use crate::output::{json_line, things};
use crate::progress::Progress;

/// Copy a table of traces, row by row, to another table or server. Copying is idempotent;
/// do not ingest at the same time.
#[derive(Args)]
pub struct Copy {
    #[command(flatten)]
    table: TableArgs,
    /// Table to copy to.
    #[arg(long, value_name = "TABLE")]
    to_table: String,
    /// Address of another server: host:port, https:// for TLS, or "google".
    #[arg(long, value_name = "ENDPOINT")]
    to_endpoint: Option<String>,
    /// Project to copy to, if different.
    #[arg(long, value_name = "PROJECT")]
    to_project: Option<String>,
    /// Instance to copy to, if different.
    #[arg(long, value_name = "INSTANCE")]
    to_instance: Option<String>,
}

impl Copy {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let same = self.to_endpoint.is_none()
            && self.to_project.is_none()
            && self.to_instance.is_none()
            && self.to_table == self.table.table_id;
        if same {
            bail!("cannot copy table {} onto itself", self.to_table);
        }
        let options = self.target()?;
        let copied = self.table.run(async |store| {
            let target = Client::connect(options).await.map_err(with_hint)?;
            let mut progress = Progress::new();
            // The total is unknown until the end.
            let mut show = |so_far: Copied| progress.show(0.0, so_far.cells, "cells");
            let copied = copy(&store, &target, &self.to_table, &mut show).await;
            let copied = copied.map_err(user_error);
            progress.clear();
            copied
        })?;
        let mut out = io::stdout().lock();
        if self.table.json {
            json_line(&mut out, &json!(copied))?;
        } else {
            writeln!(
                out,
                "copied {}, {}",
                things(copied.rows, "row"),
                things(copied.cells, "cell")
            )?;
        }
        Ok(Outcome::Sound)
    }

    /// Returns the options of the target: those of the source, with the given overrides.
    fn target(&self) -> anyhow::Result<Options> {
        let mut options = self.table.connection.clone().within(INSTANCE).options()?;
        if let Some(project) = &self.to_project {
            options.project = project.clone();
        }
        if let Some(instance) = &self.to_instance {
            options.instance = instance.clone();
        }
        match self.to_endpoint.as_deref() {
            None => {}
            Some("google") => options = Options::google(options.project, options.instance),
            Some(endpoint) => {
                options.endpoint = endpoint.into();
                options.admin_endpoint = None;
            }
        }
        Ok(options)
    }
}
