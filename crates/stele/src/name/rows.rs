//! The Bigtable that holds the rows of names.

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use stele_bigtable::client::{Client, Credentials, Options as BigtableOptions};
use stele_mounttable::{Mounttable, Options, TABLE};

use crate::connection;
use crate::serve::names::{INSTANCE, PROJECT};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rows")]
pub struct Rows {
    /// The Bigtable: host:port, https://host, or "google" for Cloud Bigtable.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1:8086")]
    bigtable: String,
    /// The project that holds the instance.
    #[arg(long, default_value = PROJECT)]
    project: String,
    /// The instance that holds the tables.
    #[arg(long, default_value = INSTANCE)]
    instance: String,
    /// The table of nodes; its counters are in TABLE-counters.
    #[arg(long, default_value = TABLE)]
    table: String,
    /// A JSON file with a key, or "default" for what the environment offers.
    #[arg(long, value_name = "FILE")]
    creds: Option<String>,
}

impl Rows {
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut options = match &self.bigtable[..] {
            "google" => BigtableOptions::google(&self.project, &self.instance),
            host => BigtableOptions::new(host, &self.project, &self.instance),
        };
        match self.creds.as_deref() {
            None => {}
            Some("default") => options.credentials = Credentials::ApplicationDefault,
            Some(file) => options.credentials = Credentials::File(file.into()),
        }
        options.deadline = Some(std::time::Duration::from_secs(60));
        Client::connect(options).await.map_err(connection::advise)
    }

    /// A server of names on these rows.
    pub async fn mounttable(&self, options: Options) -> anyhow::Result<Arc<Mounttable>> {
        let options = Options { table: self.table.clone(), ..options };
        Ok(Mounttable::new(&self.client().await?, options)?)
    }
}

/// A runtime for commands that serve or read rows themselves.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")
}
