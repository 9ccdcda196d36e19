//! The administration of tablets of the server that the table commands connect to, and
//! the hints for its errors.

use anyhow::ensure;
use stele_tables_api::Client;
use tonic::{Code, Status};

use super::bigtable::BigtableServer;
use super::hint::{Hint, with_hint};
use super::runtime;
use super::server::GOOGLE;

/// An error of the administration of tablets.
pub struct TabletsError(pub Status);

impl BigtableServer {
    /// Connects and runs `work` with the client.
    pub fn run_tablets<T>(
        &self,
        work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        ensure!(
            self.chosen()?.typed != GOOGLE,
            "Cloud Bigtable does not show its tablets: pass the address of a `stele serve` with \
             --server"
        );
        let options = self.options()?;
        runtime::run(async {
            let connected = Client::connect(&options.endpoint, &options.tls).await;
            let client = connected.map_err(|status| with_hint(TabletsError(status)))?;
            work(match options.deadline {
                Some(deadline) => client.with_timeout(deadline),
                None => client,
            })
            .await
        })
    }

    /// Returns the full name of a table. A name with a slash is complete already.
    pub fn table_name(&self, table: &str) -> anyhow::Result<String> {
        Ok(match table.contains('/') {
            true => table.to_string(),
            false => format!("{}/tables/{table}", self.options()?.instance_name()),
        })
    }
}

impl Hint for TabletsError {
    fn message(&self) -> String {
        self.0.message().to_string()
    }

    fn hint(&self) -> Option<&'static str> {
        match self.0.code() {
            Code::Unavailable if self.0.message().starts_with("cannot reach") => {
                Some("start a server with `stele serve`, or pass its address with --server")
            }
            Code::Unavailable => Some("check that the server is running, then retry"),
            Code::DeadlineExceeded => Some("allow more time with --timeout"),
            Code::NotFound if self.0.message().contains("backup") => {
                Some("`stele table backup list` shows the existing backups")
            }
            Code::NotFound if self.0.message().contains("deleted") => {
                Some("`stele table list --deleted` shows the tables that can be brought back")
            }
            Code::NotFound => Some("`stele table list` shows the existing tables"),
            Code::InvalidArgument if self.0.message().contains("tablet") => {
                Some("`stele table tablets` shows the tablets of a table")
            }
            Code::Unimplemented => Some("this server does not administer tablets"),
            _ => None,
        }
    }
}
