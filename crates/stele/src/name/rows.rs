//! The Bigtable that holds the rows of names.

use std::sync::Arc;

use clap::Args;
use stele_bigtable_client::{Client, Options as BigtableOptions};
use stele_mounttable::{Mounttable, Options, TABLE};

use crate::connect::{parse_credentials, with_hint};

/// The default project of names outside `stele serve`. (The server's own names are in a
/// project that only the server itself can access.)
pub const PROJECT: &str = "names";
pub const INSTANCE: &str = "names";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rows")]
pub struct Rows {
    /// Address of the Bigtable: host:port, https://host, or "google" for Cloud Bigtable.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1:8086")]
    bigtable: String,
    /// Project that contains the instance.
    #[arg(long, default_value = PROJECT)]
    project: String,
    /// Instance that contains the tables.
    #[arg(long, default_value = INSTANCE)]
    instance: String,
    /// Table of nodes; its counters are in TABLE-counters.
    #[arg(long, default_value = TABLE)]
    table: String,
    /// JSON key file, or "default" for the credentials of the environment.
    #[arg(long, value_name = "FILE")]
    creds: Option<String>,
    /// Send these credentials in plain text to other hosts too.
    #[arg(long)]
    insecure_token: bool,
}

/// Existing rows, if a command is to access them directly.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rows")]
pub struct ExistingRows {
    /// Check the rows in this Bigtable: host:port, https://host, or "google" for Cloud
    /// Bigtable.
    #[arg(long, value_name = "HOST")]
    bigtable: Option<String>,
    /// Project that contains the instance.
    #[arg(long, default_value = PROJECT, requires = "bigtable")]
    project: String,
    /// Instance that contains the tables.
    #[arg(long, default_value = INSTANCE, requires = "bigtable")]
    instance: String,
    /// Table of nodes; its counters are in TABLE-counters.
    #[arg(long, default_value = TABLE, requires = "bigtable")]
    table: String,
    /// JSON key file, or "default" for the credentials of the environment.
    #[arg(long, value_name = "FILE", requires = "bigtable")]
    creds: Option<String>,
}

impl ExistingRows {
    pub fn given(&self, insecure_token: bool) -> Option<Rows> {
        let ExistingRows { bigtable, project, instance, table, creds } = self.clone();
        Some(Rows { bigtable: bigtable?, project, instance, table, creds, insecure_token })
    }
}

impl Rows {
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut options = match &self.bigtable[..] {
            "google" => BigtableOptions::google(&self.project, &self.instance),
            host => BigtableOptions::new(host, &self.project, &self.instance),
        };
        if let Some(creds) = &self.creds {
            options.credentials = parse_credentials(creds);
        }
        options.insecure_token = self.insecure_token;
        options.deadline = Some(std::time::Duration::from_secs(60));
        Client::connect(options).await.map_err(with_hint)
    }

    /// Opens a mounttable on these rows.
    pub async fn mounttable(&self, options: Options) -> anyhow::Result<Arc<Mounttable>> {
        let options = Options { table: self.table.clone(), ..options };
        Ok(Mounttable::new(&self.client().await?, options)?)
    }
}
